"""Which runs a table is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.harness.contest.specs import contest_specs
from benchmarks.harness.label_similarity import LABEL_METHODS
from benchmarks.harness.methods import METHODS
from benchmarks.harness.peers import PEERS
from benchmarks.harness.records import RunSpec

from prcut.errors import InvalidInputError

__all__ = ["TABLES", "select_specs"]

_QUICK_METHODS = (
    *("faiss_kmeans", "spectral_clustering", "leiden_k", "metis"),
    *("prcut", "prcut_graph", "prcut_cut", "prcut_trained", "prcut_trained_graph"),
)
_ALL = (
    *(*PEERS, "prcut", "prcut_fast", "prcut_best"),
    *("prcut_graph", "prcut_cut", "prcut_trained"),
)
# with seeds 0 to 4, where others have three
_CLAIMED = ("prcut", "prcut_cut")
# 25,000 steps on pixels take hours: one seed
_PUBLISHED_LIMIT = 8 * 3600.0


class _Data(NamedTuple):
    """Rows of a table."""

    dataset: str
    split: str
    representation: str = "raw"
    n_rows: int | None = None


_RAW = (
    _Data("mnist", "train"),
    _Data("fashion_mnist", "train"),
    _Data("usps", "all"),
    _Data("coil20", "all"),
)
_EMBEDDED = (
    _Data("cifar10", "test", "efficientnet-lite0", 5000),
    _Data("banking77", "all", "minilm"),
    _Data("clinc150", "all", "minilm"),
    _Data("stackoverflow", "all", "minilm"),
)


def _specs(
    table: str,
    data: _Data,
    n_neighbors: int,
    methods: Iterable[str],
    seeds: Sequence[int],
    time_limit: float = 600.0,
) -> list[RunSpec]:
    """Order runs by seed, so that a stopped table has whole columns."""
    return [
        RunSpec(
            table,
            data.dataset,
            data.split,
            data.representation,
            n_neighbors,
            method,
            seed,
            data.n_rows,
            time_limit,
        )
        for seed in seeds
        for method in methods
        if METHODS[method].seeded or seed == seeds[0]
    ]


def _all_methods(table: str, data: _Data) -> list[RunSpec]:
    return [
        *_specs(table, data, 15, _ALL, range(3)),
        *_specs(table, data, 15, (*_CLAIMED, "prcut_trained"), range(3, 5)),
        *_published(table, data, 15),
    ]


def _published(table: str, data: _Data, n_neighbors: int) -> list[RunSpec]:
    """Return the run of the paper's settings, which bring their own graph; cuts are the table's."""
    space = "pixels" if data.representation == "raw" else "representations"
    method = f"prcut_published_{space}"
    return _specs(table, data, n_neighbors, (method,), (0,), _PUBLISHED_LIMIT)


def _quick() -> list[RunSpec]:
    """Return the runs on scikit-learn's digits, which take a minute or two."""
    return _specs("quick", _Data("digits", "all"), 10, _QUICK_METHODS, (0,), 120.0)


def _table1() -> list[RunSpec]:
    """Compare the loss with cross-entropy where the similarity is the label, on the test splits."""
    data = [_Data(name, "test") for name in ("mnist", "fashion_mnist", "cifar10")]
    return [
        spec for one in data for spec in _specs("table1", one, 0, LABEL_METHODS, range(3), 3600.0)
    ]


def _table2() -> list[RunSpec]:
    """Ratio cut against spectral clustering on the same graphs; the paper's has 150 neighbours."""
    graphs = [(data, n_neighbors) for data in _RAW[:2] for n_neighbors in (15, 50, 150)]
    graphs.append((_Data("cifar10", "train"), 150))
    runs = (
        (("spectral_clustering",), 10),
        (("prcut_graph", "prcut_cut"), 5),
        (("prcut_trained_graph", "prcut_trained_cut"), 3),
    )
    specs: list[RunSpec] = []
    for data, n_neighbors in graphs:
        for methods, n_seeds in runs:
            specs += _specs("table2", data, n_neighbors, methods, range(n_seeds), 3600.0)
        if n_neighbors == 150:
            specs += _published("table2", data, n_neighbors)
    return specs


def _table3() -> list[RunSpec]:
    """Return the runs of all methods on raw pixels: MNIST, Fashion-MNIST, USPS, COIL-20."""
    return [spec for data in _RAW for spec in _all_methods("table3", data)]


def _table4() -> list[RunSpec]:
    """Return the runs of all methods on embeddings of CIFAR-10 and of three sets of texts."""
    return [spec for data in _EMBEDDED for spec in _all_methods("table4", data)]


def _peers() -> list[RunSpec]:
    """table3 and table4 together, from and to their files."""
    return _table3() + _table4()


def _contest() -> list[RunSpec]:
    """Return the development half of the contest; only benchmarks/contest.py runs the other."""
    return contest_specs("development")


TABLES: dict[str, Callable[[], list[RunSpec]]] = {
    "quick": _quick,
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table4": _table4,
    "peers": _peers,
    "contest": _contest,
}


def select_specs(
    specs: Sequence[RunSpec],
    *,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
) -> list[RunSpec]:
    """Return the specs of some methods and data sets."""
    for option, given, known in (
        ("methods", methods, [spec.method for spec in specs]),
        ("datasets", datasets, [spec.dataset for spec in specs]),
    ):
        for name in given or ():
            if name not in known:
                choice = ", ".join(dict.fromkeys(known))
                raise InvalidInputError(
                    f"{option}={name!r} is not in this table; choose from {choice}."
                )
    return [
        spec
        for spec in specs
        if (methods is None or spec.method in methods)
        and (datasets is None or spec.dataset in datasets)
    ]
