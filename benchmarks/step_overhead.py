"""What a training step costs beyond the assigner's own.

60,000 rows in 10 planted groups, about 200 neighbours each, pairs by walks of 8 steps, the default
batch of 2,048 pairs (4,096 rows), three assigners. `train` as a whole, with its draws, rows, loss,
running mass and history, is timed against the least that any training does: fetch the same rows
from the same array, forward, a trivial loss, backward, Adam. Both take turns in blocks of steps, so
that what else the machine does meets them alike; counted is the median over turns of the ratio.

torch has one thread. Beside the ratio of times stands that of processor time, which other jobs
disturb less, and the ratio to a bare step that need not fetch rows either.

Exits with 1 when a step takes more than 1.15 of the bare one.

    python benchmarks/step_overhead.py             # about 2 minutes
    python benchmarks/step_overhead.py --quick     # half a minute
    python benchmarks/step_overhead.py --compile   # torch.compile of forward and loss, and no more
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from _verdict import verdict
from prcut import Assigner, SimilarityGraph, cluster_imbalance, soft_ratio_cut
from prcut.graph.rows import gather_rows
from prcut.numerics.objective import divide_by_mass
from prcut.numerics.proximal import softmax
from prcut.training.batches import _STEPS_AHEAD, FeatureBatch, GatheredPairs, pair_sums
from prcut.training.loop import train
from prcut.training.loss import RunningClusterMass
from prcut.training.pairs import WalkPairs
from prcut.training.state import TrainConfig, TrainState
from prcut.training.streams import draw_steps

N_SAMPLES, N_GROUPS, N_NEIGHBORS, WALK_LENGTH = 60_000, 10, 110, 8
BATCH_SIZE = TrainConfig().batch_size
MAX_RATIO = 1.15


class Case(NamedTuple):
    """An assigner, and how many steps of it make a block of about a second."""

    n_features: int
    n_clusters: int
    hidden: tuple[int, ...]
    block: int

    def assigner(self) -> Assigner:
        """Return the same at every call."""
        seeded = torch.Generator().manual_seed(0)
        return Assigner(self.n_features, self.n_clusters, self.hidden, generator=seeded)

    def features(self) -> Tensor:
        """Return the same at every call."""
        seeded = torch.Generator().manual_seed(1)
        return torch.randn(N_SAMPLES, self.n_features, generator=seeded)


CASES = {
    "linear 384→10": Case(384, 10, (), block=200),
    "perceptron 784→512→512→10": Case(784, 10, (512, 512), block=10),
    "linear 768→1000": Case(768, 1000, (), block=10),
}


def planted_graph() -> SimilarityGraph:
    """Neighbours drawn at random within groups."""
    rng = np.random.default_rng(0)
    size = N_SAMPLES // N_GROUPS
    group = np.arange(N_SAMPLES)[:, None] // size
    neighbors = np.sort(group * size + rng.integers(size, size=(N_SAMPLES, N_NEIGHBORS)), axis=1)
    neighbors[:, 1:][neighbors[:, 1:] == neighbors[:, :-1]] = -1  # drawn twice
    return SimilarityGraph.from_neighbors(neighbors)


class Clock(NamedTuple):
    """Seconds on the wall, and of the processor in all threads."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, block: Callable[[], object], steps: int = 1) -> "Clock":
        """Per step of a block."""
        start = cls(time.perf_counter(), time.process_time())
        block()
        stop = cls(time.perf_counter(), time.process_time())
        return cls(*((b - a) / steps for a, b in zip(start, stop, strict=True)))


def our_blocks(case: Case, pairs: GatheredPairs) -> Iterator[Clock]:
    """Blocks of steps of one run."""
    assigner = case.assigner()
    state = TrainState.start(assigner, TrainConfig())
    while True:
        config = TrainConfig(max_steps=state.step + case.block, patience=None)
        yield Clock.of(lambda: train(pairs, assigner, config, state=state), case.block)  # noqa: B023


def bare_blocks(case: Case, features: Tensor, rows: list[Tensor], gather: bool) -> Iterator[Clock]:
    """Blocks of steps of nothing but the assigner, on the rows given."""
    assigner = case.assigner()
    optimizer = torch.optim.Adam(assigner.parameters(), lr=1e-3)
    labels = torch.arange(2 * BATCH_SIZE) % case.n_clusters
    gathered = features.index_select(0, rows[0])

    def block() -> None:
        for step in range(case.block):
            batch = features.index_select(0, rows[step % len(rows)]) if gather else gathered
            loss = nn.functional.cross_entropy(assigner(batch), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    while True:
        yield Clock.of(block, case.block)


def overhead(graph: SimilarityGraph, turns: int, block_share: float) -> list[str]:
    """Print one row per assigner; return what fell short."""
    sampler = WalkPairs(graph, n_steps=WALK_LENGTH)
    rows = [pairs.rows for pairs in draw_steps(sampler, BATCH_SIZE, seed=0, steps=range(50))]
    print(
        "| assigner | ms, bare | ms, ours | ratio (quartiles) | processor time | "
        "to bare on rows at hand | draw | gather | loss | cross-entropy |\n" + 10 * "|---" + "|"
    )
    short = []
    for name, full_case in CASES.items():
        case = full_case._replace(block=max(10, int(full_case.block * block_share)))
        features = case.features()
        ways = [
            our_blocks(case, GatheredPairs(sampler, features)),
            bare_blocks(case, features, rows, gather=True),
            bare_blocks(case, features, rows, gather=False),
        ]
        for way in ways:
            next(way)  # warms up
        found = [[next(way) for way in ways] for _ in range(turns)]
        ratios = sorted(ours.wall / bare.wall for ours, bare, _ in found)
        ratio = statistics.median(ratios)
        medians = [1e3 * statistics.median(turn[i].wall for turn in found) for i in (1, 0)]
        cpu = statistics.median(ours.cpu / bare.cpu for ours, bare, _ in found)
        at_hand = statistics.median(ours.wall / bare.wall for ours, _, bare in found)
        parts = part_times(case, sampler, features)
        print(
            f"| {name} | {medians[0]:.2f} | {medians[1]:.2f} "
            f"| {ratio:.3f} ({ratios[turns // 4]:.2f}–{ratios[-1 - turns // 4]:.2f}) "
            f"| {cpu:.3f} | {at_hand:.3f} | "
            + " | ".join(f"{1e3 * part:.2f} ms" for part in parts)
            + " |",
            flush=True,
        )
        if ratio > MAX_RATIO:
            short.append(f"{name}: {ratio:.3f} of a bare step > {MAX_RATIO}")
    return short


def part_times(case: Case, sampler: WalkPairs, features: Tensor) -> list[float]:
    """Median seconds of a draw, of fetching its rows, of our loss and of cross-entropy."""
    (pairs,) = draw_steps(sampler, BATCH_SIZE, seed=0, steps=[0])
    batch = FeatureBatch(gather_rows(features, pairs.rows), *pairs[1:])
    mass = RunningClusterMass(case.n_clusters)
    logits = torch.randn(2 * BATCH_SIZE, case.n_clusters, requires_grad=True)
    labels = torch.arange(2 * BATCH_SIZE) % case.n_clusters
    parts: list[Callable[[], object]] = [
        lambda: draw_steps(sampler, BATCH_SIZE, seed=0, steps=range(_STEPS_AHEAD)),
        lambda: gather_rows(features, pairs.rows),
        lambda: objective(logits, batch, mass).backward(),
        lambda: nn.functional.cross_entropy(logits, labels).backward(),
    ]
    times = [[Clock.of(part).wall for part in parts] for _ in range(20)]
    draw, *rest = (statistics.median(part) for part in zip(*times, strict=True))
    return [draw / _STEPS_AHEAD, *rest]


def objective(logits: Tensor, batch: FeatureBatch, running_mass: RunningClusterMass) -> Tensor:
    """Return the loss of a batch, as `train` computes it."""
    probs = softmax(logits)
    cuts, sums = pair_sums(probs, batch)
    mass = running_mass.average(sums, batch.node_weight.sum())
    return divide_by_mass(cuts, mass) + 10 * cluster_imbalance(mass)


def compiled(graph: SimilarityGraph) -> None:
    """Print steps with forward and loss compiled against the same steps uncompiled."""
    sampler = WalkPairs(graph, n_steps=WALK_LENGTH)
    (pairs,) = draw_steps(sampler, BATCH_SIZE, seed=0, steps=[0])
    print("| assigner | ms | ms, compiled | ratio | seconds to compile |\n" + 5 * "|---" + "|")
    for name, case in CASES.items():
        features = gather_rows(case.features(), pairs.rows)
        assigner = case.assigner()
        optimizer = torch.optim.Adam(assigner.parameters(), lr=1e-3)

        def loss(features: Tensor, weight: Tensor, node_weight: Tensor) -> Tensor:
            probs = assigner(features).softmax(-1)  # noqa: B023
            mass = node_weight @ probs / node_weight.sum()
            return soft_ratio_cut(weight, *probs.chunk(2), mass) + cluster_imbalance(mass)

        def step(loss: Callable[..., Tensor], features: Tensor = features) -> None:
            optimizer.zero_grad()  # noqa: B023
            loss(features, pairs.weight, pairs.node_weight).backward()
            optimizer.step()  # noqa: B023

        faster = torch.compile(loss)
        waited = Clock.of(lambda: step(faster)).wall  # noqa: B023
        times = [[Clock.of(lambda: step(way)).wall for way in (loss, faster)] for _ in range(15)]  # noqa: B023
        ratio = statistics.median(b / a for a, b in times)
        medians = [1e3 * statistics.median(way) for way in zip(*times, strict=True)]
        print(f"| {name} | {medians[0]:.2f} | {medians[1]:.2f} | {ratio:.2f} | {waited:.0f} |")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile instead")
    options = parser.parse_args()
    torch.set_num_threads(1)  # on a shared machine two threads wait for each other
    graph = planted_graph()
    print(
        f"{N_SAMPLES:,} rows, {2 * graph.n_edges:,} entries, walks of {WALK_LENGTH} steps, "
        f"{BATCH_SIZE:,} pairs per step, torch {torch.__version__}, 1 thread\n"
    )
    if options.compile:
        compiled(graph)
        return 0
    short = overhead(graph, *((7, 0.4) if options.quick else (15, 1.0)))
    return verdict(short, f"steps <= {MAX_RATIO} × bare")


if __name__ == "__main__":
    sys.exit(main())
