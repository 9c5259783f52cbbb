"""Progress of a long fit: live bars on a terminal or in a notebook, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from prcut.runtime.progress import Progress, Step
from prcut.training.state import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from prcut.fit.config import FitConfig

# seconds between two lines of a log
_LOG_EVERY = 10.0
# seconds between two updates of the bars in a notebook
_NOTEBOOK_EVERY = 0.2


class FitDisplay:
    """Show the stages of a fit while it runs; a context manager.

    :meth:`on_progress` shows any stage; :meth:`on_record`, which needs ``config``, shows training.
    The console is standard error by default; ``log`` receives plain lines in any case.
    """

    def __init__(
        self,
        config: FitConfig | None = None,
        *,
        enabled: bool = True,
        console: Console | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._config, self._enabled, self._console = config, enabled, console
        self._writers = [] if log is None else [log]
        self._last_line = self._last_update = 0.0
        self._bars: Any = None
        self._tasks: dict[str, TaskID] = {}
        self._n_steps = 0
        self._cell_output: Any = None

    def __enter__(self) -> FitDisplay:
        if not self._enabled:
            return self
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = self._console or Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            self._writers.append(
                partial(console.print, markup=False, highlight=False, soft_wrap=True)
            )
            return self
        self._bars = Progress(
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[figures]}", style="cyan"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        if not console.is_jupyter:  # there, rich's live display would need ipywidgets
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def on_progress(self, progress: Progress) -> None:
        """Show the progress of a stage."""
        speed = f"{progress.rows_per_second:,.0f}/s"
        self._show(progress.stage, progress.done, progress.total, speed)

    def on_step(self, step: Step) -> None:
        """Show a step of the search that has ended."""
        objective = "" if step.objective is None else f": objective {step.objective:.4f}"
        self._n_steps += 1
        self._show("search", self._n_steps, self._n_steps, f"{step.name}{objective}")

    def on_record(self, start: int, record: Record) -> None:
        """Show the progress of a restart: its cut or cross-entropy, and its clusters."""
        config = self._config
        assert config is not None  # noqa: S101
        n_starts = 1 if config.solver == "search" else config.n_starts
        which = f" {start + 1}/{n_starts}" if n_starts > 1 else ""
        name, loss = ("cut", record.cut)
        if loss is None:  # while distilling
            name, loss = ("cross-entropy", record.objective)
        figures = (
            f"{name} {loss:.4f}  clusters {record.used_clusters}/{config.n_clusters}"
            f"  confidence {record.confidence:.2f}"
        )
        self._show(f"training{which}", record.step, config.in_use.max_steps, figures)

    def _show(self, stage: str, done: int, total: int, figures: str) -> None:
        now, is_done = time.monotonic(), done >= total
        if self._bars is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bars.add_task(stage, total=total, figures="")
            self._bars.update(self._tasks[stage], completed=done, total=total, figures=figures)
            is_late = is_done or now - self._last_update >= _NOTEBOOK_EVERY
            if self._bars.console.is_jupyter and is_late:
                self._last_update = now
                self._show_in_cell()
        if is_done or now - self._last_line >= _LOG_EVERY:
            self._last_line = now
            for write in self._writers:
                write(f"{stage}: {done:,}/{total:,}  {figures}")

    def _show_in_cell(self) -> None:
        """Draw the bars as HTML in a notebook's cell, which a saved notebook keeps."""
        from IPython.display import display

        if self._cell_output is None:
            self._cell_output = display(self._bars, display_id=True)
        else:
            self._cell_output.update(self._bars)
