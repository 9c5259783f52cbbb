"""What a person sees of a long run: a live bar on a terminal or in a notebook, lines elsewhere."""

from __future__ import annotations

import time
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any

from prcut.progress import Progress
from prcut.train_state import Record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from prcut.fitting import FitConfig

__all__ = ["FitDisplay"]

# seconds between two lines of a log file, and between two looks of a notebook's bars
_LOG_EVERY, _NOTEBOOK_EVERY = 10.0, 0.2


class FitDisplay:
    """Shows the stages of a fit as they go; as a context manager.

    Hand :meth:`on_progress` to what builds graphs and :meth:`on_record` to what trains.

    Parameters
    ----------
    config : FitConfig, optional
        Needed where training is shown.
    enabled : bool
        False shows nothing.
    console : rich.console.Console, optional
        Standard error by default, so that output can be piped.
    """

    def __init__(
        self,
        config: FitConfig | None = None,
        *,
        enabled: bool = True,
        console: Console | None = None,
    ) -> None:
        self._config, self._enabled, self._console = config, enabled, console
        self._tasks: dict[str, TaskID] = {}
        self._last_line = 0.0
        self._notebook: _NotebookBars | None = None

    def __enter__(self) -> FitDisplay:
        if self._enabled:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._console = self._console or Console(stderr=True)
            if self._console.is_jupyter:  # rich would need ipywidgets there
                self._notebook = _NotebookBars()
            self._bars = Progress(
                TextColumn("{task.description}", style="bold"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.fields[figures]}", style="cyan"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=self._console,
            )
            if self._is_live:
                self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._enabled and self._is_live:
            self._bars.stop()

    @property
    def _is_live(self) -> bool:
        assert self._console is not None  # noqa: S101
        return self._console.is_terminal and self._notebook is None

    def on_progress(self, progress: Progress) -> None:
        """Show how far a stage is."""
        speed = f"{progress.rows_per_second:,.0f}/s"
        self._show(progress.stage, progress.done, progress.total, speed)

    def on_record(self, start: int, record: Record) -> None:
        """Show how far a start is, its cut and its clusters."""
        config = self._config
        assert config is not None  # noqa: S101
        n_starts = 1 if config.solver == "search" else config.n_starts
        which = f" {start + 1}/{n_starts}" if n_starts > 1 else ""
        figures = (
            f"cut {record.cut:.4f}  clusters {record.used_clusters}/{config.n_clusters}"
            f"  confidence {record.confidence:.2f}"
        )
        self._show(f"training{which}", record.step, config.in_use.max_steps, figures)

    def _show(self, stage: str, done: int, total: int, figures: str) -> None:
        if not self._enabled:
            return
        assert self._console is not None  # noqa: S101
        if self._notebook is not None:
            self._notebook.show(stage, done, total, figures)
        elif self._is_live:
            if stage not in self._tasks:
                self._tasks[stage] = self._bars.add_task(stage, total=total, figures="")
            self._bars.update(self._tasks[stage], completed=done, total=total, figures=figures)
        elif done >= total or time.monotonic() - self._last_line >= _LOG_EVERY:
            self._last_line = time.monotonic()
            line = f"{stage}: {done:,}/{total:,}  {figures}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class _NotebookBars:
    """Bars in the output of a notebook's cell, in place of themselves as they go.

    They are plain HTML, so they need no extension and stay in a notebook that is saved or
    converted.
    """

    def __init__(self) -> None:
        self._lines: dict[str, tuple[int, int, str]] = {}
        self._handle: Any = None
        self._last = 0.0

    def show(self, stage: str, done: int, total: int, figures: str) -> None:
        is_new = stage not in self._lines
        self._lines[stage] = done, total, figures
        now = time.monotonic()
        if not is_new and done < total and now - self._last < _NOTEBOOK_EVERY:
            return
        self._last = now
        from IPython.display import display

        content = {"text/html": self._html(), "text/plain": self._plain()}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _html(self) -> str:
        lines = "".join(
            f"<tr><td>{escape(stage)}</td>"
            f'<td><progress value="{done}" max="{max(1, total)}"></progress></td>'
            f"<td>{done:,}/{total:,}</td><td>{escape(figures)}</td></tr>"
            for stage, (done, total, figures) in self._lines.items()
        )
        return f'<table style="font-size:90%;text-align:left">{lines}</table>'

    def _plain(self) -> str:
        return "\n".join(
            f"{stage}: {done:,}/{total:,}  {figures}"
            for stage, (done, total, figures) in self._lines.items()
        )
