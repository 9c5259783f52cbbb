"""A fit on one machine: search a partition → teach it, or train an assigner from several starts.

No label takes part: of partitions and of starts, the one with the lowest
:func:`prcut.objective.hard_objective` is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, distributed

from prcut.assigner import Assigner
from prcut.assignment import assign_labels
from prcut.batches import GatheredPairs, PairStream, as_features, gather_rows
from prcut.blocks import Block, Blocks
from prcut.cuts import cluster_cuts
from prcut.errors import InvalidInputError
from prcut.graph import SimilarityGraph
from prcut.neighbors import Metric
from prcut.objective import hard_objective_of_sums
from prcut.pair_shards import PairShards
from prcut.pairs import EdgePairs, GraphPairs, UniformPairs, WalkPairs
from prcut.partition import Draft, Partition, draft_partition, find_partition
from prcut.processes import this_place
from prcut.similarity import PairSimilarity, Similarity
from prcut.storage import Folder
from prcut.train_state import Record, TrainConfig, TrainState
from prcut.training import train
from prcut.validation import check_positive_int

__all__ = [
    "Fit",
    "FitConfig",
    "Preset",
    "SearchedGraph",
    "Solver",
    "Taught",
    "choose_device",
    "choose_graph",
    "choose_n_neighbors",
    "fit_graph",
    "fit_shards",
    "label_edges",
    "measure_features",
    "measure_fit",
    "new_assigner",
]

_LOG = logging.getLogger(__name__)

Preset = Literal["default", "paper"]
Solver = Literal["search", "train"]
# the layer that learns a partition by default: what walks found is not linear in the features
_HIDDEN = (256,)

# labels are learned from smaller batches than cuts are estimated from
_TEACHING: dict[str, Any] = {"batch_size": 512}
# neighbours that are tried, and the mean adjusted Rand index from which starts found the same
_FEW_TO_MANY, _SAME = (10, 30, 100), 0.85
# spread of the degrees, in means, below which the fewest neighbours do
_EVEN = 1 / 3
# no start is made after one whose objective is so small a part of what knowing nothing costs
_NOTHING_LEFT = 1e-4
# rows that origin and scale of the features are measured on
_MEASURED_ROWS = 2**16


@dataclass(frozen=True)
class FitConfig:
    """Everything that decides a fit, besides the data.

    Parameters
    ----------
    n_clusters : int
    n_neighbors : int, optional
        By default :func:`choose_n_neighbors`.
    metric, similarity
        As for :func:`prcut.similarity.build_graph`.
    solver : {"search", "train"}
        ``"search"`` finds a partition of the graph (:func:`prcut.partition.find_partition`) and
        teaches it to the assigner; ``"train"`` trains the assigner on pairs, as the paper does.
    pairs : {"walk", "uniform"}
        Both ends of walks along the edges, or the paper's two batches.
    walk_length : int
        Steps of a walk; 1 draws edges.
    hidden, bottleneck
        As for :class:`prcut.assigner.Assigner`; by default one hidden layer for what was searched,
        none for what is trained.
    n_init : int, optional
        Starts, of which the one with the lowest objective is kept; by default 2 to search and 4 to
        train.
    balance_weight : float, optional
        Of the search, by default what suits the graph (:func:`prcut.partition.choose_balance`);
        training has its own in ``train``.
    train, teach : TrainConfig
        Of the one solver and of the other.
    """

    n_clusters: int
    n_neighbors: int | None = None
    metric: Metric = "euclidean"
    similarity: Similarity | PairSimilarity = "mean"
    solver: Solver = "search"
    pairs: Literal["walk", "uniform"] = "walk"
    walk_length: int = 8
    hidden: tuple[int, ...] | None = None
    bottleneck: int | None = None
    n_init: int | None = None
    balance_weight: float | None = None
    train: TrainConfig = field(default_factory=TrainConfig)
    teach: TrainConfig = field(default_factory=lambda: TrainConfig(**_TEACHING))

    def __post_init__(self) -> None:
        for name in ("n_clusters", "walk_length"):
            check_positive_int(name, getattr(self, name))
        for name in ("n_neighbors", "n_init"):
            if getattr(self, name) is not None:
                check_positive_int(name, getattr(self, name))
        for name, known in (("pairs", ("walk", "uniform")), ("solver", ("search", "train"))):
            if getattr(self, name) not in known:
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} must be {known[0]!r} or {known[1]!r}."
                )

    @property
    def in_use(self) -> TrainConfig:
        """The one of ``train`` and ``teach`` that the solver uses."""
        return self.teach if self.solver == "search" else self.train

    @property
    def n_starts(self) -> int:
        """``n_init``, or the solver's default."""
        return self.n_init or (2 if self.solver == "search" else 4)

    @property
    def layers(self) -> tuple[int, ...]:
        """``hidden``, or the solver's default."""
        if self.hidden is not None:
            return self.hidden
        return _HIDDEN if self.solver == "search" else ()

    @classmethod
    def of(cls, preset: Preset, n_clusters: int, *, seed: int = 0, **given: Any) -> FitConfig:
        """A preset with whatever is given, and is not None, in place of its own.

        >>> config = FitConfig.of("paper", 10, max_steps=100, n_neighbors=None)
        >>> config.pairs, config.n_neighbors, config.train.learning_rate, config.train.max_steps
        ('uniform', 100, 0.0001, 100)
        """
        check_positive_int("n_clusters", n_clusters)
        if preset == "default":
            config = cls(n_clusters)
        elif preset == "paper":
            config = cls(
                n_clusters,
                n_neighbors=100,
                similarity="binary",
                solver="train",
                pairs="uniform",
                n_init=1,
                train=TrainConfig.paper(n_clusters),
            )
        else:
            raise InvalidInputError(f"{preset=} must be 'default' or 'paper'.")
        given = {name: value for name, value in given.items() if value is not None}
        names = asdict(config.train)
        steps = {"seed": seed} | {name: given.pop(name) for name in names if name in given}
        train, teach = replace(config.train, **steps), replace(config.teach, **steps)
        balance = steps.get("balance_weight")
        return replace(config, **given, balance_weight=balance, train=train, teach=teach)

    def balanced(self, balance_weight: float) -> FitConfig:
        """With the balance weight that was chosen."""
        teach = replace(self.teach, balance_weight=balance_weight)
        return replace(self, balance_weight=balance_weight, teach=teach)


class Fit(NamedTuple):
    """The best of several starts.

    Attributes
    ----------
    assigner : Assigner
    state : TrainState
    labels : int64 array, shape (n_samples,), or None
        None where the rows are on disk.
    objective, ratio_cut : float
        Of the hard assignment on the graph that was trained on.
    cluster_sizes : int64 array, shape (n_clusters,)
    config : FitConfig
        With all that was chosen on the way.
    """

    assigner: Assigner
    state: TrainState
    labels: np.ndarray | None
    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    config: FitConfig


class SearchedGraph(NamedTuple):
    """A graph of so many neighbours with the partition that was found on it."""

    n_neighbors: int
    graph: SimilarityGraph
    partition: Partition


class Taught(NamedTuple):
    """An assigner that has been taught already, and how that went."""

    assigner: Assigner
    state: TrainState


class _Score(NamedTuple):
    objective: float
    ratio_cut: float
    cluster_sizes: np.ndarray
    labels: np.ndarray | None = None


class _Part(NamedTuple):
    """A graph, or one block of it, with the labels of its rows; the core rows come first."""

    graph: SimilarityGraph
    labels: Tensor
    n_core: int


class _Problem(NamedTuple):
    pairs: PairStream
    make: Callable[[Generator], Assigner]
    measure: Callable[[Assigner], _Score]


def fit_graph(
    graph: SimilarityGraph,
    features: Any,
    config: FitConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Folder | None = None,
    on_record: Callable[[int, Record], None] | None = None,
    partition: Partition | None = None,
) -> Fit:
    """Fit an assigner of ``features`` to a graph in memory.

    Parameters
    ----------
    graph : SimilarityGraph
    features : array, memory map, tensor or SciPy sparse matrix, shape (n_samples, n_features)
    config : FitConfig
    device : device or str
        Where the assigner is trained; the graph stays where it is.
    checkpoint : Folder, optional
        Where every start is saved as it goes.
    on_record : callable, optional
        Called with the number of the start and its newest :class:`Record`.
    partition : Partition, optional
        What was found on this graph already.
    """
    features = as_features(features)
    make = partial(new_assigner, *measure_features(features, config.train.seed), config)
    if config.solver == "search":
        if partition is None and this_place().rank == 0:
            partition = _search(graph, config)
        return _teach(graph, features, partition, make, config, device, checkpoint, on_record)
    n_samples = graph.n_samples
    sampler: GraphPairs
    if config.pairs == "uniform":
        largest = min(config.train.batch_size, n_samples)
        config = replace(config, train=replace(config.train, batch_size=largest))
        sampler = UniformPairs(graph)
    else:
        sampler = WalkPairs(graph, n_steps=config.walk_length)

    def measure(assigner: Assigner) -> _Score:
        return _measure(graph, assign_labels(assigner, features), config)

    problem = _Problem(GatheredPairs(sampler, features), make, measure)
    return _best_start(problem, config, torch.device(device), checkpoint, on_record)


def _teach(
    graph: SimilarityGraph,
    features: Any,
    partition: Partition | None,
    make: Callable[[Generator], Assigner],
    config: FitConfig,
    device: torch.device | str,
    checkpoint: Folder | None,
    on_record: Callable[[int, Record], None] | None,
) -> Fit:
    labels, balance_weight = torch.zeros(graph.n_samples, dtype=torch.int64), 0.0
    if partition is not None:
        labels, balance_weight = torch.from_numpy(partition.labels), partition.balance_weight
    if this_place().world_size > 1:  # the first process has found it for all of them
        found = labels.to(device), torch.tensor([balance_weight], dtype=torch.float64).to(device)
        for part in found:
            distributed.broadcast(part, src=0)
        labels, balance_weight = found[0].cpu(), found[1].item()
    config = config.balanced(balance_weight)
    assigner = make(Generator().manual_seed(config.teach.seed)).to(device)
    state = train(
        GatheredPairs(EdgePairs(graph), features, labels),
        assigner,
        config.teach,
        checkpoint=None if checkpoint is None else checkpoint / "start-0",
        on_record=None if on_record is None else partial(on_record, 0),
    )
    return _fit_of(assigner, state, _measure(graph, labels.numpy(), config), config)


def measure_fit(fit: Fit, graph: SimilarityGraph, features: Any) -> Fit:
    """The same fit with the labels that its assigner gives, and their objective."""
    labels = assign_labels(fit.assigner, as_features(features))
    return _fit_of(fit.assigner, fit.state, _measure(graph, labels, fit.config), fit.config)


def _fit_of(assigner: Assigner, state: TrainState, score: _Score, config: FitConfig) -> Fit:
    figures = score.objective, score.ratio_cut, score.cluster_sizes
    return Fit(assigner, state, score.labels, *figures, config)


def _measure(graph: SimilarityGraph, labels: np.ndarray, config: FitConfig) -> _Score:
    part = _Part(graph, torch.from_numpy(labels).to(graph.weight.device), graph.n_samples)
    return _score([part], config)._replace(labels=labels)


def fit_shards(
    shards: PairShards,
    blocks: Blocks,
    config: FitConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Folder | None = None,
    on_record: Callable[[int, Record], None] | None = None,
    taught: Taught | None = None,
) -> Fit:
    """Fit an assigner to pairs on disk; the objective is summed over the blocks.

    Parameters are those of :func:`fit_graph`, and ``taught``: what was found on a sample, which is
    kept where no start has a lower objective. Memory holds one block at a time.
    """
    config = replace(config, solver="train")
    similarity = config.similarity
    if callable(similarity):
        raise InvalidInputError("similarity must be a name where rows are on disk, not a callable.")
    with closing(shards.stream(4096, seed=config.train.seed)) as stream:
        sample = next(stream).features
    make = partial(new_assigner, *measure_features(sample), config)

    def parts(assigner: Assigner) -> Iterator[_Part]:
        rank, world_size = this_place()
        for number in range(rank, len(blocks), world_size):
            block = blocks[number]
            labels = torch.from_numpy(label_edges(assigner, block))
            yield _Part(block.graph(similarity), labels, block.n_core)

    def measure(assigner: Assigner) -> _Score:
        return _score(parts(assigner), config, is_shared=True)

    found = None
    if taught is not None:
        searched = replace(config, solver="search")
        found = _fit_of(*taught, measure(taught.assigner), searched)
        _LOG.info("what was found on a sample: objective %.4f", found.objective)
    problem = _Problem(shards, make, measure)
    return _best_start(problem, config, torch.device(device), checkpoint, on_record, found)


def label_edges(assigner: Assigner, block: Block) -> np.ndarray:
    """Labels of core rows and of all that an edge leads to; most of a halo is neither."""
    is_seen = np.arange(len(block.features)) < block.n_core
    is_seen[block.neighbors[block.neighbors >= 0]] = True
    labels = np.zeros(len(is_seen), np.int64)
    labels[is_seen] = assign_labels(assigner, block.features[is_seen])
    return labels


def _best_start(
    problem: _Problem,
    config: FitConfig,
    device: torch.device,
    checkpoint: Folder | None,
    on_record: Callable[[int, Record], None] | None,
    best: Fit | None = None,
) -> Fit:
    for start in range(config.n_starts):
        # hashed: seed 0's second start is not seed 1's first
        (seed,) = np.random.SeedSequence([config.train.seed, start]).generate_state(1)
        train_config = replace(config.train, seed=int(seed))
        assigner = problem.make(Generator().manual_seed(int(seed))).to(device)
        state = train(
            problem.pairs,
            assigner,
            train_config,
            checkpoint=None if checkpoint is None else checkpoint / f"start-{start}",
            on_record=None if on_record is None else partial(on_record, start),
        )
        score = problem.measure(assigner)
        _LOG.info(
            "start %d/%d: objective %.4f after %d steps",
            start + 1,
            config.n_starts,
            score.objective,
            state.step,
        )
        if best is None or score.objective < best.objective:
            best = _fit_of(assigner, state, score, config)
        if best.objective <= _NOTHING_LEFT * (config.n_clusters - 1):
            break
    assert best is not None  # noqa: S101
    return best


def _score(parts: Iterable[_Part], config: FitConfig, *, is_shared: bool = False) -> _Score:
    """Objective and ratio cut from sums over the parts of a graph.

    ``is_shared``: other processes have the other parts.
    """
    cuts = torch.zeros(config.n_clusters, dtype=torch.float64)
    sizes, total = cuts.clone(), torch.zeros((), dtype=torch.float64)
    for part in parts:
        cuts += cluster_cuts(part.graph.weight, part.labels, config.n_clusters).cpu()
        sizes += torch.bincount(part.labels[: part.n_core], minlength=config.n_clusters).cpu()
        total += part.graph.weight.values().double().sum().cpu()
    if is_shared and this_place().world_size > 1:
        device = choose_device("auto") if distributed.get_backend() == "nccl" else "cpu"
        sums = torch.cat([cuts, sizes, total[None]]).to(device)
        distributed.all_reduce(sums)
        cuts, sizes, total = sums.cpu().split([len(cuts), len(sizes), 1])
        total = total[0]
    objective = hard_objective_of_sums(cuts, sizes, total, config.in_use.balance_weight)
    ratio_cut = torch.where(cuts > 0, 0.5 * cuts / sizes, 0.0).sum()
    return _Score(float(objective), float(ratio_cut), sizes.long().numpy())


def new_assigner(origin: Tensor, scale: float, config: FitConfig, generator: Generator) -> Assigner:
    """An untrained assigner of features with that origin and scale."""
    assigner = Assigner(
        len(origin), config.n_clusters, config.layers, config.bottleneck, generator=generator
    )
    assigner.standardize(origin, scale)
    return assigner


def measure_features(features: Any, seed: int = 0) -> tuple[Tensor, float]:
    """Mean row, and root mean square deviation over all columns, of a sample of the rows.

    >>> origin, scale = measure_features(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> origin.tolist(), round(scale, 4)
    ([2.0, 5.0], 0.7071)
    """
    features = as_features(features)
    n_samples = features.shape[0]
    rows: Tensor | slice = slice(None)
    if n_samples > _MEASURED_ROWS:
        drawn = np.random.default_rng(seed).choice(n_samples, _MEASURED_ROWS, replace=False)
        rows = torch.from_numpy(np.sort(drawn))
    sample = gather_rows(features, rows)
    if sample.layout == torch.sparse_csr:
        # columns are added up without a dense copy; the deviation follows from the squares
        origin = torch.zeros(sample.shape[1], dtype=torch.float64)
        origin.index_add_(0, sample.col_indices(), sample.values().double())
        origin /= sample.shape[0]
        square = sample.values().double().square().sum() / sample.numel() - origin.square().mean()
    else:
        origin = sample.mean(0, dtype=torch.float64)
        square = (sample - origin).square_().mean()
    scale = float(square.clamp_min(0).sqrt())
    # rows that are all the same have no scale
    return origin.float(), scale if scale > 0 and np.isfinite(scale) else 1.0


def choose_n_neighbors(n_samples: int, n_clusters: int) -> int:
    """Neighbours to train with, by default: a tenth of a cluster, within limits.

    No more than 150, which images wanted; no more than make 20 million links (or 15 a row), which
    keeps the graph near a gigabyte; at least 10, and below ``n_samples``.

    >>> sizes = (50, 3), (13_000, 77), (60_000, 10), (10**7, 100)
    >>> [choose_n_neighbors(n_samples, n_clusters) for n_samples, n_clusters in sizes]
    [10, 16, 150, 15]
    """
    wanted = min(150, n_samples // (10 * n_clusters), max(15, 20_000_000 // n_samples))
    return max(1, min(max(10, wanted), n_samples - 1))


def choose_graph(
    build: Callable[[int], SimilarityGraph], n_samples: int, config: FitConfig
) -> SearchedGraph:
    """The sparsest graph that tells the clusters, and these.

    Few neighbours follow the shape of clusters closely. They do where degrees are even: rows lie on
    something of few dimensions. Where some rows are neighbours of very many, few neighbours lead to
    these hubs, and do only if different starts find the same clusters; otherwise more are tried;
    where none decide, the most are taken, since they average most. No label takes part.

    Parameters
    ----------
    build : callable
        The graph with so many neighbours.
    n_samples : int
    config : FitConfig
        ``n_neighbors``, where it is given, is the only one that is tried.
    """
    fewest, *_ = to_try = _neighbors_to_try(n_samples, config)
    for n_neighbors in to_try:
        graph = build(n_neighbors)
        draft = draft_partition(
            graph,
            config.n_clusters,
            balance_weight=config.balance_weight,
            seed=config.teach.seed,
        )
        agreement = draft.partition.agreement
        _LOG.info("%d neighbours: starts agree to %.2f", n_neighbors, agreement)
        if agreement >= _SAME or (n_neighbors == fewest and _spread_of_degrees(graph) <= _EVEN):
            break
    return SearchedGraph(n_neighbors, graph, _search(graph, config, draft))


def _neighbors_to_try(n_samples: int, config: FitConfig) -> list[int]:
    if config.n_neighbors is not None:
        return [int(config.n_neighbors)]
    # more than a third of a cluster would join it to others
    most = min(n_samples // (3 * config.n_clusters), max(15, 20_000_000 // n_samples))
    most = max(1, min(max(most, 10), n_samples - 1))
    return sorted({min(number, most) for number in _FEW_TO_MANY})


def _spread_of_degrees(graph: SimilarityGraph) -> float:
    """Their standard deviation over their mean."""
    deviation, mean = torch.std_mean(graph.degree.double(), correction=0)
    return float(deviation / mean)


def _search(graph: SimilarityGraph, config: FitConfig, draft: Draft | None = None) -> Partition:
    return find_partition(
        graph,
        config.n_clusters,
        balance_weight=config.balance_weight,
        n_init=config.n_starts,
        seed=config.teach.seed,
        draft=draft,
    )


def choose_device(name: str) -> torch.device:
    """The device of a name; ``"auto"`` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # "meta" holds nothing
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"device={name!r} cannot be used: {reason}") from error
    return device
