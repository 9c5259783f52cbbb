"""The pair samplers at 200,000 rows: are their gradients right in the mean, and how noisy are they.

A Gaussian mixture of 200,000 rows × 64, 15 Euclidean neighbours, either-or, and a
linear assigner to 10 clusters at two points of its training: after 20 steps, where the gradient
is large, and after 100. Every sampler draws batches of the same 4,096 forward rows; the gradient of
each batch is compared with the full gradient of the sampler's own kernel, which sparse products
give exactly. Relative variance is the mean of ‖batch − full‖² / ‖full‖².

* With the exact cluster mass, in value and gradient, only the pairs vary and the mean over batches
  must be the full gradient. Tested by ‖mean − full‖ over the length that it has if the sampler is
  right, √(trace of the batches' covariance / batches): about 1, and refused above 1.25. Beside it
  the chance of such a ratio or a larger one (χ² with the covariance's effective dimension), and as
  a check of the check the same ratio against another kernel: W for walks, two steps for the others.
* With the batch's own mass, as training estimates it, the gradient is only consistent: reported.

Then the time of a uniform draw from 60,000 rows of 150 neighbours, which most of a batch's edges
miss: CPU-seconds of one thread.

Exits with 1 when a mean is off, when `edge` has more than .25 of the variance of `uniform`, or when
a uniform draw takes more than 15 ms.

    python benchmarks/samplers.py           # 2,000 batches each, about 5 minutes
    python benchmarks/samplers.py --quick   # 400 batches at one point of training
"""

import argparse
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from _verdict import verdict
from prcut import (
    Assigner,
    SimilarityGraph,
    build_graph,
    cluster_imbalance,
    soft_ratio_cut,
)
from prcut.training.loss import RunningClusterMass
from prcut.training.pairs import (
    EdgePairs,
    GraphPairs,
    PairBatch,
    UniformPairs,
    WalkPairs,
)
from prcut.training.streams import draw_steps

N_SAMPLES, N_FEATURES, N_CLUSTERS, N_NEIGHBORS = 200_000, 64, 10, 15
BATCH_SIZE = 2_048  # at each end: 4,096 forward rows
MAX_MEAN_ERROR, MAX_EDGE_VARIANCE = 1.25, 0.25
DRAW_ROWS, DRAW_NEIGHBORS, MAX_DRAW = 60_000, 150, 15.0


def gaussian_mixture() -> np.ndarray:
    """Overlapping components of unequal size, more of them than clusters."""
    rng = np.random.default_rng(0)
    n_components = 30
    centers = rng.normal(0, 0.6, (n_components, N_FEATURES))
    component = rng.choice(n_components, N_SAMPLES, p=rng.dirichlet(np.full(n_components, 3.0)))
    rows = centers[component] + rng.normal(0, 1, (N_SAMPLES, N_FEATURES))
    return rows.astype(np.float32)


def half_train(assigner: Assigner, features: Tensor, sampler: GraphPairs, steps: int) -> None:
    mass = RunningClusterMass(N_CLUSTERS)
    optimizer = torch.optim.Adam(assigner.parameters(), lr=1e-2)
    for step in range(steps):
        (batch,) = draw_steps(sampler, BATCH_SIZE, seed=1, steps=[step])
        probs = assigner.probs(features[batch.rows])
        cluster_mass = mass(probs, batch.node_weight)
        loss = soft_ratio_cut(batch.weight, probs[batch.source], probs[batch.target], cluster_mass)
        (loss + 10 * cluster_imbalance(cluster_mass)).backward()
        optimizer.step()
        optimizer.zero_grad()


class Problem:
    """Features and a float64 assigner, with the exact cluster mass and its Jacobian."""

    def __init__(self, features: Tensor, assigner: Assigner) -> None:
        self.features = features.double()
        self.assigner = assigner.double()
        probs = self.assigner.probs(self.features)
        self.mass = probs.detach().mean(0)
        # row ℓ: how p̄_ℓ moves with the parameters
        self.mass_slope = torch.stack(
            [self._flat(probs[:, cluster].mean(), retain=True) for cluster in range(N_CLUSTERS)]
        )

    def _flat(self, value: Tensor, *, retain: bool = False) -> Tensor:
        found = torch.autograd.grad(value, list(self.assigner.parameters()), retain_graph=retain)
        return torch.cat([gradient.flatten() for gradient in found])

    def full_gradient(self, sampler: GraphPairs) -> Tensor:
        """Of Σ_ℓ pᵀK(1−p)/p̄_ℓ, K the sampler's normalised kernel."""
        probs = self.assigner.probs(self.features)
        outside = sampler.kernel_product(1 - probs.detach())
        inside = sampler.kernel_product(probs.detach())
        cut = (probs.detach() * outside).sum(0)
        # K is symmetric, so ∂ pᵀK(1−p) = K(1−p) − Kp
        of_cut = self._flat((probs * ((outside - inside) / self.mass)).sum())
        return of_cut - (cut / self.mass**2) @ self.mass_slope

    def batch_gradients(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """With the mass of all rows and its slope, and with those of the batch's own rows."""
        probs = self.assigner.probs(self.features[batch.rows])
        ends = probs[batch.source], probs[batch.target]
        mass = self.mass.clone().requires_grad_()
        loss = soft_ratio_cut(batch.weight, *ends, mass)
        of_mass, *found = torch.autograd.grad(
            loss, [mass, *self.assigner.parameters()], retain_graph=True
        )
        exact_mass = torch.cat([gradient.flatten() for gradient in found])
        exact_mass += of_mass @ self.mass_slope
        own_mass = RunningClusterMass(N_CLUSTERS, update_rate=1.0).double()
        mass = own_mass(probs, batch.node_weight.double())
        return exact_mass, self._flat(soft_ratio_cut(batch.weight, *ends, mass))


class Noise(NamedTuple):
    """Noise of a sampler's gradients around a full gradient."""

    variance: float  # relative
    mean_error: float  # ‖mean − full‖ over what it would be by chance
    chance: float  # of such a mean error or a larger one
    resolution: float  # what it would be by chance, over ‖full‖


def noise(gradients: Tensor, full: Tensor) -> Noise:
    n_batches = len(gradients)
    centered = gradients - gradients.mean(0)
    covariance = centered.T @ centered / (n_batches - 1)
    by_chance = covariance.trace() / n_batches
    ratio = (gradients.mean(0) - full).square().sum() / by_chance
    dimension = float(covariance.trace() ** 2 / covariance.square().sum())
    return Noise(
        variance=float((gradients - full).square().sum(1).mean() / full.square().sum()),
        mean_error=float(ratio.sqrt()),
        chance=float(stats.chi2.sf(float(ratio) * dimension, dimension)),
        resolution=float((by_chance / full.square().sum()).sqrt()),
    )


class Drawn(NamedTuple):
    """Gradients of a sampler's batches, shape (n_batches, n_parameters), and its cost."""

    exact_mass: Tensor
    batch_mass: Tensor
    n_pairs: float
    milliseconds: float  # median per draw


def draw(problem: Problem, sampler: GraphPairs, n_batches: int) -> Drawn:
    generator = torch.Generator().manual_seed(2)
    gradients: list[tuple[Tensor, Tensor]] = []
    n_pairs, times = [], []
    for _ in range(n_batches):
        start = time.perf_counter()
        batch = sampler.draw(BATCH_SIZE, generator)
        times.append(time.perf_counter() - start)
        n_pairs.append(len(batch.weight))
        gradients.append(problem.batch_gradients(batch))
    exact_mass, batch_mass = (torch.stack(part) for part in zip(*gradients, strict=True))
    return Drawn(exact_mass, batch_mass, float(np.mean(n_pairs)), 1e3 * float(np.median(times)))


def gradient_noise(n_batches: int, points: tuple[int, ...]) -> list[str]:
    """Print a table for every point of training; return what fell short."""
    rows = gaussian_mixture()
    graph = build_graph(rows, N_NEIGHBORS, recall=0.9)
    torch.set_num_threads(1)  # on a shared machine two threads wait for each other in small steps
    print(
        f"Gaussian mixture, {N_FEATURES} features, {N_NEIGHBORS} neighbours: {graph}, "
        f"{2 * graph.n_edges:,} entries\n"
        f"{n_batches:,} batches of {2 * BATCH_SIZE:,} forward rows, {N_CLUSTERS} clusters, "
        f"seeds 0 (data, assigner), 1 (training) and 2 (batches),\n"
        f"torch {torch.__version__}, 1 thread"
    )
    samplers: dict[str, GraphPairs] = {"uniform": UniformPairs(graph), "edge": EdgePairs(graph)}
    samplers |= {f"walk {s}": WalkPairs(graph, n_steps=s) for s in (2, 4, 8)}
    features = torch.from_numpy(rows)
    short = []
    for steps in points:
        assigner = Assigner(N_FEATURES, N_CLUSTERS, generator=torch.Generator().manual_seed(0))
        half_train(assigner, features, samplers["edge"], steps)
        short += compare(Problem(features, assigner), samplers, n_batches, f"{steps} steps")
    return short


def compare(
    problem: Problem, samplers: dict[str, GraphPairs], n_batches: int, point: str
) -> list[str]:
    """Print one row per sampler; return what fell short."""
    full = {name: problem.full_gradient(sampler) for name, sampler in samplers.items()}
    print(
        f"\nAfter {point}, masses {problem.mass.min():.3f} to {problem.mass.max():.3f}:\n\n"
        "| sampler | pairs | ms per draw | ‖full‖ | relative variance | over uniform "
        "| mean error (≈ 1) | chance | it by chance / ‖full‖ | against another kernel "
        "| variance, batch mass | its mean − full / ‖full‖ |\n" + 12 * "|---" + "|"
    )
    short, variance = [], {}
    for name, sampler in samplers.items():
        drawn = draw(problem, sampler, n_batches)
        found = noise(drawn.exact_mass, full[name])
        other = noise(drawn.exact_mass, full["edge" if name.startswith("walk") else "walk 2"])
        own_mass = noise(drawn.batch_mass, full[name])
        variance[name] = found.variance
        print(
            f"| {name} | {drawn.n_pairs:.0f} | {drawn.milliseconds:.2f} | {full[name].norm():.4f} "
            f"| {found.variance:.4f} | {found.variance / variance['uniform']:.3f} "
            f"| {found.mean_error:.2f} | {found.chance:.2f} | {found.resolution:.2%} "
            f"| {other.mean_error:.1f} | {own_mass.variance:.4f} "
            f"| {own_mass.mean_error * own_mass.resolution:.2%} |",
            flush=True,
        )
        if found.mean_error > MAX_MEAN_ERROR:
            short.append(f"{point}, {name}: mean error {found.mean_error:.2f} > {MAX_MEAN_ERROR}")
    share = variance["edge"] / variance["uniform"]
    if share > MAX_EDGE_VARIANCE:
        short.append(f"{point}: edge has {share:.3f} of uniform's variance > {MAX_EDGE_VARIANCE}")
    return short


def uniform_draws() -> list[str]:
    """Time draws from a graph of 60,000 rows, 230 edges each, as of 150 neighbours of pixels."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    order = rng.permutation(DRAW_ROWS)
    ahead = rng.choice(DRAW_ROWS // 2 - 1, 115, replace=False) + 1
    # some neighbours are mutual
    offsets = np.concatenate([ahead, -ahead[: DRAW_NEIGHBORS - len(ahead)]])
    neighbors = np.empty((DRAW_ROWS, DRAW_NEIGHBORS), np.int64)
    neighbors[order] = order[(np.arange(DRAW_ROWS)[:, None] + offsets) % DRAW_ROWS]
    sampler = UniformPairs(SimilarityGraph.from_neighbors(neighbors))
    generator, times = torch.Generator().manual_seed(0), []
    for _ in range(30):
        start = time.process_time()
        sampler.draw(BATCH_SIZE, generator)
        times.append(time.process_time() - start)
    spent = 1e3 * statistics.median(times)
    print(f"\na uniform draw of {2 * BATCH_SIZE:,} from {DRAW_ROWS:,} rows: {spent:.1f} ms of CPU")
    return [f"a uniform draw takes {spent:.1f} ms > {MAX_DRAW:g}"] * (spent > MAX_DRAW)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a bounded version")
    quick = parser.parse_args().quick
    short = gradient_noise(*((400, (100,)) if quick else (2_000, (20, 100))))
    short += uniform_draws()
    return verdict(
        short,
        f"mean errors <= {MAX_MEAN_ERROR}, edge <= {MAX_EDGE_VARIANCE} × uniform, "
        f"a uniform draw <= {MAX_DRAW:g} ms",
    )


if __name__ == "__main__":
    sys.exit(main())
