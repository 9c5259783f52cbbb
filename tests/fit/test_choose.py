from dataclasses import replace

import numpy as np
import pytest

from prcut import SimilarityGraph
from prcut.fit import choose
from prcut.fit.choose import choose_graph
from prcut.fit.config import FitConfig
from prcut.graph.neighbors import Neighbors
from prcut.search.balance import Resampled


def test_more_neighbours_where_starts_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    star = SimilarityGraph.from_neighbors([[1], [0], [0], [0], [0]])
    agreement = {15: 0.5, 50: 0.7, 100: 0.99}
    weights: list[float | None] = []
    searched: list[int] = []
    built: list[int] = []

    def find(_: object, n_neighbors: int, **__: object) -> Neighbors:
        searched.append(n_neighbors)
        return Neighbors(np.arange(5), *np.zeros((2, 5, n_neighbors)))

    def link(found: Neighbors, *_: object) -> SimilarityGraph:
        built.append(found.indices.shape[1])
        return star

    def resample(*_: object, balance_weight: float | None, **__: object) -> Resampled:
        weights.append(balance_weight)
        return Resampled(0.01, (np.zeros(2, np.int64),))

    monkeypatch.setattr(Resampled, "agreement", property(lambda _: agreement[built[-1]]))
    monkeypatch.setattr(choose, "choose_balance", resample)
    monkeypatch.setattr(choose, "find_neighbors", find)
    monkeypatch.setattr(choose, "link_neighbors", link)
    monkeypatch.setattr(choose, "warn_of_data", lambda *_: None)
    rows = np.empty((60_000, 1))
    config = FitConfig(10)
    assert choose_graph(rows, config).n_neighbors == 50
    assert built == [15, 50]
    assert searched == [50]  # the fifteen nearest are among them
    assert weights == [None, 0.01]  # chosen where neighbours are fewest
    agreement[50] = 0.55
    agreement[100] = 0.5
    assert choose_graph(rows, config).n_neighbors == 100  # where none decide, the most
    assert searched == [50, 50, 100]
    built.clear()
    agreement[40] = 0.1
    choose_graph(rows, replace(config, n_neighbors=40))
    assert built == [40]
    agreement[15] = 0.6
    built.clear()
    assert choose_graph(rows, config).n_neighbors == 15  # the fewest on which starts agree
    assert built == [15]


@pytest.mark.parametrize(("n_samples", "n_clusters", "expected"), [(90, 10, 10), (6, 3, 5)])
def test_a_fast_fit_has_enough_neighbours(n_samples: int, n_clusters: int, expected: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n_samples, 4)).astype(np.float32)
    config = FitConfig.of("default", n_clusters, effort="fast")
    assert choose_graph(rows, config).n_neighbors == expected
