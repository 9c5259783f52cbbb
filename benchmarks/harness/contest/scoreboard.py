"""Records of the contest as a table of methods by data sets, and the ranks in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from benchmarks.harness.contest.sets import CONTEST_SETS
from benchmarks.harness.contest.specs import CONTESTANTS, is_left_out
from benchmarks.harness.methods import METHODS
from benchmarks.harness.mixing import newest_records
from benchmarks.harness.records import RunRecord

from prcut.errors import InvalidInputError

__all__ = ["SCORES", "Scoreboard", "make_scoreboard", "mean_ranks"]

SCORES = "nmi", "acc", "ari"


class Scoreboard(NamedTuple):
    """Medians over seeds, of the sets on which every method's fate is known."""

    methods: tuple[str, ...]
    sets: tuple[str, ...]
    scores: dict[str, np.ndarray]
    """Of each of SCORES (n_methods, n_sets); 0 without a result, so that it counts as the last."""
    cpu_seconds: np.ndarray
    """(n_methods, n_sets), with the graph's where one is given; NaN without a result."""
    incomplete: tuple[str, ...]
    """Sets with records of some of the methods only."""

    def of_kind(self, kind: str) -> Scoreboard:
        """Return the columns of one kind of data."""
        kept = [i for i, name in enumerate(self.sets) if CONTEST_SETS[name].kind == kind]
        return self._replace(
            sets=tuple(self.sets[i] for i in kept),
            scores={score: values[:, kept] for score, values in self.scores.items()},
            cpu_seconds=self.cpu_seconds[:, kept],
        )

    def row(self, score: str, method: str) -> np.ndarray:
        """Return a method's scores by data set."""
        values: np.ndarray = self.scores[score][self.methods.index(method)]
        return values


def make_scoreboard(records: Iterable[RunRecord]) -> Scoreboard:
    """Return the scores of all methods that have records, on the sets that all of them have."""
    runs: dict[tuple[str, str], list[RunRecord]] = {}
    for record in newest_records(records):
        if record.result.status != "failed" or _refuses_rows(record):
            runs.setdefault((record.spec.method, record.spec.dataset), []).append(record)
    methods = tuple(name for name in CONTESTANTS if any(method == name for method, _ in runs))
    seen = [name for name in CONTEST_SETS if any(dataset == name for _, dataset in runs)]
    sets = tuple(
        name for name in seen if all((m, name) in runs or is_left_out(name, m) for m in methods)
    )
    if not sets:
        raise InvalidInputError("no data set has records of all methods; run more of them.")
    cells = [
        [_summarise_runs(method, runs.get((method, name), [])) for name in sets]
        for method in methods
    ]
    table = np.array(cells)
    scores = {score: table[:, :, i] for i, score in enumerate(SCORES)}
    incomplete = tuple(name for name in seen if name not in sets)
    return Scoreboard(methods, sets, scores, table[:, :, -1], incomplete)


def _refuses_rows(record: RunRecord) -> bool:
    """Return whether a method cannot take the rows, as EVoC with two columns; it has no result."""
    return record.result.message.startswith("ValueError")


def _summarise_runs(method: str, runs: Sequence[RunRecord]) -> list[float]:
    """Return the medians of the scores and of the CPU time."""
    done = [record.result for record in runs if record.result.status == "done"]
    if not done:
        return [0.0, 0.0, 0.0, np.nan]
    on_graph = METHODS[method].on_graph
    seconds = [(one.cpu_seconds or 0.0) + on_graph * (one.graph_seconds or 0.0) for one in done]
    return [
        *(median(getattr(one, score) or 0.0 for one in done) for score in SCORES),
        median(seconds),
    ]


def mean_ranks(scores: np.ndarray) -> np.ndarray:
    """Return the mean over data sets of each method's rank, 1 being best; ties share theirs.

    >>> mean_ranks(np.array([[0.9, 0.8], [0.5, 0.8], [0.1, 0.2]]))
    array([1.25, 1.75, 3.  ])
    """
    from scipy.stats import rankdata

    # equal to three digits is equal: seeds differ by more
    ranks: np.ndarray = rankdata(-np.round(scores, 3), axis=0)
    return np.asarray(ranks.mean(1))
