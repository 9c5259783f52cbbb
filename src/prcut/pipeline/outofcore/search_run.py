"""The stages of a run on disk that is searched: partition, rows to distil, labels, assigner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prcut.pipeline.constrained import fraction_limits, warn_of_sizes
from prcut.pipeline.fit import Fit, distil
from prcut.pipeline.known import columns_of
from prcut.pipeline.outofcore.blocks import Blocks, open_blocks
from prcut.pipeline.outofcore.lesson import open_lesson, write_lesson
from prcut.pipeline.outofcore.link import write_weights
from prcut.pipeline.outofcore.row_labels import finish, read_score, save_score, write_row_labels
from prcut.pipeline.outofcore.search_blocks import BlockSearch
from prcut.pipeline.run_plan import RunPlan, describe_run
from prcut.pipeline.starts import LazyStart
from prcut.runtime.engine import Engine
from prcut.runtime.folder import plan_key
from prcut.runtime.progress import Progress


def search_run(
    plan: RunPlan, blocks: Blocks, engine: Engine, on_progress: Callable[[Progress], None]
) -> None:
    """Search the partition of all rows, or finish what an earlier call began."""
    config, n_samples = plan.config, plan.source.n_samples
    key = plan_key([blocks.key, describe_run(plan.source, config)])
    folder, scratch = plan.folder / "partition", plan.folder / "search"
    how: tuple[Engine, dict[str, Any]] = engine, {"on_progress": on_progress}
    if not folder.is_sealed("manifest.json", key):
        scratch.start({"key": key})
        if config.weight_column is not None:
            write_weights(
                scratch, columns_of(plan.source, config.weight_column), config.weight_column
            )
        search = BlockSearch(scratch, config, plan.most_nodes, *how)
        found = search.run(blocks)
        labels = found.state.labels
        warn_of_sizes(found.state.sizes, found.limits)
        sums = found.balance_weight, found.state.cuts, found.cost
        save_score(folder, key, search.score(found), *sums)
        n_seen = config.distil.max_steps * config.distil.batch_size
        lesson = plan.folder / "lesson"
        write_lesson(blocks, found.rows, labels, lesson, n_seen, config.seed, *how)
        write_row_labels(found.rows, labels, folder, key, n_samples, *how)
        finish(folder, key, n_samples)
    scratch.delete()


def distil_run(plan: RunPlan, options: dict[str, Any]) -> Fit:
    """Distil the partition that was found; ``options`` are those of training."""
    score, balance_weight = read_score(plan.folder / "partition")
    given = plan.config, options["device"], options["checkpoint"], options["on_record"]
    scales = open_blocks(f"{plan.path}/blocks").scales
    lesson = open_lesson(plan.folder / "lesson", scales)
    fractions = fraction_limits(plan.config, plan.source.n_samples)
    start = distil(lesson, balance_weight, given, scales, fractions)
    return Fit(LazyStart.of(start), None, *score, balance_weight, "search")
