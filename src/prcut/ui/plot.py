"""Pictures of a clustering, in the style of scikit-learn's displays.

Every display is made by ``from_estimator`` or ``from_predictions`` (or from its own figures) and
drawn by ``plot(ax=None)``, which sets ``ax_`` and ``figure_`` for further changes.
Colours come from matplotlib's settings, except those of :mod:`prcut.ui.colors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.cuts import cluster_links
from prcut.numerics.matching import count_shared
from prcut.ui.colors import cluster_colors
from prcut.ui.matrix import MOST_TICKS, draw_matched, draw_matrix, percent_of_rows
from prcut.ui.report.inspection import Inspectable
from prcut.ui.report.projection import learn_projection

if TYPE_CHECKING:
    from typing_extensions import Self

# rows drawn on a map; more would only cover one another
MOST_DRAWN = 200_000
# rows that the map of rows without an estimator is learned from
_SAMPLE_ROWS = 6000
# with more clusters, numbers and bars of single ones are too small to read
_MOST_NAMED = 40
# red, green and blue of rows with a label of −1
_NO_CLUSTER = 0.75, 0.75, 0.75


class _Display:
    """Base of the displays: each draws what it holds on axes."""

    _size = (4.8, 3.2)
    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw on the axes, or on new ones."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=self._size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(length=3)
        self._draw(ax)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


class _MatrixDisplay(_Display):
    _size = (4.8, 4.3)


class ClusterMapDisplay(_Display):
    """Map of the rows, coloured by cluster, grey for −1; of very many rows a sample is drawn.

    Parameters
    ----------
    coords : array, shape (n_samples, 2)
    labels : integer array, shape (n_samples,)
    n_clusters : int, optional
        By default the largest label + 1.
    names : sequence of str, optional
        What is written on the clusters, by default their numbers, if there are at most 40.
    """

    _size = (5.2, 5.2)

    def __init__(
        self,
        coords: np.ndarray,
        labels: np.ndarray,
        n_clusters: int | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self.coords, self.labels = np.asarray(coords), np.asarray(labels)
        if len(self.coords) != len(self.labels) or not len(self.labels):
            raise InvalidInputError(
                f"{len(self.coords)} coordinates for {len(self.labels)} labels; pass as many, and "
                "at least one."
            )
        self.n_clusters = n_clusters or int(self.labels.max()) + 1
        self.names = names

    @classmethod
    def from_estimator(
        cls, estimator: Inspectable, X: Any, *, seed: int = 0, ax: Any = None
    ) -> Self:
        """Draw the rows of X by the input of the last layer of a fitted PRCut."""
        found = estimator.inspect(X, only="map", seed=seed)
        return cls(found.coords, found.labels, found.n_clusters).plot(ax)

    @classmethod
    def from_predictions(cls, X: Any, labels: np.ndarray, *, seed: int = 0, ax: Any = None) -> Self:
        """Draw the rows of X as they are, with any labels."""
        rows, rng = np.asarray(X, np.float32), np.random.default_rng([seed, 2])
        chosen = np.sort(rng.choice(len(rows), min(len(rows), _SAMPLE_ROWS), replace=False))
        projection = learn_projection(rows[chosen], seed=seed)
        return cls(projection.place(projection.reduce(rows), rng), labels).plot(ax)

    def _draw(self, ax: Any) -> None:
        # in random order, so that no cluster covers the others
        drawn = np.random.default_rng(0).permutation(len(self.labels))[:MOST_DRAWN]
        colors = np.vstack([cluster_colors(self.n_clusters), _NO_CLUSTER])  # −1 is the last
        ax.scatter(
            *self.coords[drawn].T,
            c=colors[self.labels[drawn]],
            s=np.clip(30 * (1000 / len(drawn)) ** 0.65, 0.5, 30),
            alpha=0.7,
            linewidths=0,
            rasterized=True,
        )
        ax.set_aspect("equal", adjustable="datalim")
        ax.axis("off")
        if self.n_clusters <= _MOST_NAMED:
            for number in np.unique(self.labels[self.labels >= 0]):
                self._name(ax, int(number))

    def _name(self, ax: Any, number: int) -> None:
        from matplotlib import rcParams
        from matplotlib.patheffects import withStroke

        inside = self.coords[self.labels == number]
        # the row nearest to the median: the median itself may lie in another cluster
        middle = inside[np.abs(inside - np.median(inside, 0)).sum(1).argmin()]
        halo = withStroke(linewidth=2.5, foreground=rcParams["axes.facecolor"])
        text = str(number) if self.names is None else self.names[number]
        style: dict[str, Any] = {"fontsize": 9, "fontweight": "bold", "path_effects": [halo]}
        drawn = ax.text(*middle, text, ha="center", va="center", clip_on=True, **style)
        drawn.set_in_layout(False)  # maps of the same rows have the same size


class ClusterSizesDisplay(_Display):
    """Rows per cluster: bars, or sorted sizes where clusters are many. Dashed: the mean."""

    def __init__(self, sizes: np.ndarray) -> None:
        self.sizes = np.asarray(sizes)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Count the rows of X that a fitted PRCut puts in each cluster."""
        return cls.from_predictions(estimator.predict(X), estimator.assigner_.n_clusters, ax=ax)

    @classmethod
    def from_predictions(cls, labels: np.ndarray, n_clusters: int = 0, *, ax: Any = None) -> Self:
        """Count labels from 0; rows of −1 are in no cluster."""
        labels = np.asarray(labels)
        return cls(np.bincount(labels[labels >= 0], minlength=n_clusters)).plot(ax)

    def _draw(self, ax: Any) -> None:
        n_clusters = len(self.sizes)
        numbers = range(n_clusters)
        if n_clusters <= _MOST_NAMED:
            ax.bar(numbers, self.sizes, color=cluster_colors(n_clusters), width=0.8)
            ax.set_xticks(numbers[:: 1 if n_clusters <= 20 else 5])
            ax.set_xlabel("cluster")
        else:
            ax.fill_between(numbers, np.sort(self.sizes)[::-1], color="tab:blue", step="post", lw=0)
            ax.set_xlabel("clusters, largest first")
            ax.margins(x=0)
        from matplotlib import rcParams

        color = rcParams["text.color"]
        ax.axhline(self.sizes.mean(), color=color, lw=0.8, ls=(0, (4, 3)), alpha=0.7)
        ax.set_ylabel("rows")
        ax.yaxis.set_major_formatter("{x:,.0f}")


class HistoryDisplay(_Display):
    """Training: the objective, its cut, and the confidence, over the steps."""

    def __init__(self, history: Mapping[str, np.ndarray]) -> None:
        self.history = history

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw ``history_`` of a fitted PRCut, whose assigner is distilled first."""
        getattr(estimator, "assigner_", None)  # asking for it distils
        return cls(estimator.history_).plot(ax)

    def _draw(self, ax: Any) -> None:
        right = ax.twinx()
        curves = (("objective", ax, "blue"), ("cut", ax, "orange"), ("confidence", right, "green"))
        step, lines = self.history["step"], []
        for name, axes, color in (curve for curve in curves if curve[0] in self.history):
            lines += axes.plot(step, self.history[name], color=f"tab:{color}", lw=1.4, label=name)
        loss = "objective, cut" if "cut" in self.history else "objective (cross-entropy)"
        ax.set(xlabel="step", ylabel=loss, ylim=(0, None))
        right.set(ylabel="confidence", ylim=(0, 1.02))
        where: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}
        ax.legend(handles=lines, frameon=False, fontsize=8, handlelength=1.4, **where)
        right.spines[["top", "left"]].set_visible(False)


class ConfidenceDisplay(_Display):
    """Histogram of the probability that rows have in their own cluster."""

    def __init__(self, confidence: np.ndarray) -> None:
        self.confidence = np.asarray(confidence)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Draw the confidence of a fitted PRCut in the rows of X."""
        return cls.from_predictions(estimator.predict_proba(X), ax=ax)

    @classmethod
    def from_predictions(cls, probs: np.ndarray, *, ax: Any = None) -> Self:
        """Draw probabilities, shape (n_samples, n_clusters), or the largest of each row."""
        probs = np.asarray(probs)
        return cls(probs if probs.ndim == 1 else probs.max(1)).plot(ax)

    def _draw(self, ax: Any) -> None:
        weights = np.full(len(self.confidence), 100 / max(1, len(self.confidence)))
        ax.hist(self.confidence, np.linspace(0, 1, 41), weights=weights, color="tab:blue")
        ax.set(xlim=(0, 1), xlabel="probability of the row's cluster", ylabel="% of the rows")


class AgreementDisplay(_Display):
    """How well independent searches agree on each number of clusters, and which was chosen.

    Parameters
    ----------
    tried : integer array, shape (n_tried,)
        Numbers of clusters.
    agreement : array, shape (n_tried,)
        Mean adjusted Rand index of the searches: :class:`prcut.search.count.ClusterCount`.
    n_clusters : int
        The number that was chosen.
    """

    def __init__(self, tried: np.ndarray, agreement: np.ndarray, n_clusters: int) -> None:
        self.tried, self.agreement = np.asarray(tried), np.asarray(agreement)
        self.n_clusters = n_clusters

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw what ``fit`` found with ``n_clusters="auto"``."""
        count = getattr(estimator, "cluster_count_", None)
        if count is None:
            raise InvalidInputError(
                "nothing was counted: n_clusters was given, or the model was loaded; fit it with "
                "n_clusters='auto'."
            )
        return cls(count.tried, count.agreement, count.n_clusters).plot(ax)

    def _draw(self, ax: Any) -> None:
        from matplotlib.ticker import LogLocator, NullLocator

        ax.plot(self.tried, self.agreement, ".-", color="tab:blue", lw=1.2)
        ax.axvline(self.n_clusters, color="tab:orange", ls="--", lw=1)
        chosen = f"{self.n_clusters} chosen" if self.n_clusters > 1 else "no clusters"
        where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(chosen, (self.n_clusters, 1), (4, -2), va="top", fontsize=8, **where)
        ax.set(xscale="log", ylim=(0, 1.05), xlabel="clusters", ylabel="agreement of searches")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())


class CutMatrixDisplay(_MatrixDisplay):
    """Percentage of every cluster's weight (a row) that goes to each other cluster (a column).

    Parameters
    ----------
    links : array, shape (n_clusters, n_clusters)
        Weight between clusters, and inside them on the diagonal:
        :func:`prcut.numerics.cuts.cluster_links`.
    """

    def __init__(self, links: np.ndarray) -> None:
        self.links = np.asarray(links, float)

    @classmethod
    def from_estimator(cls, estimator: Inspectable, X: Any, *, ax: Any = None) -> Self:
        """Draw the clusters of X on the neighbour graph of X."""
        found = estimator.inspect(X, only="cut")
        if found.links is None:
            raise InvalidInputError(f"n_clusters={found.n_clusters} is too large for a matrix.")
        return cls(found.links).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        graph: SimilarityGraph,
        labels: np.ndarray,
        n_clusters: int | None = None,
        *,
        ax: Any = None,
    ) -> Self:
        """Draw any labels on a graph."""
        import torch

        links = cluster_links(graph.weight, torch.as_tensor(labels), n_clusters)
        return cls(links.numpy()).plot(ax)

    def _draw(self, ax: Any) -> None:
        percent = percent_of_rows(self.links)
        np.fill_diagonal(percent, np.nan)  # the weight inside would outshine the rest
        draw_matrix(ax, percent, "tab:blue", "% of the cluster's weight")
        ax.set(xlabel="to cluster", ylabel="from cluster")


class ConfusionDisplay(_MatrixDisplay):
    """Classes against clusters, ordered so that matched ones are on the diagonal.

    Parameters
    ----------
    shared : integer array, shape (n_classes, n_clusters)
        Number of rows in both: :func:`prcut.numerics.matching.count_shared`.
    names : sequence of str, optional
        Names of the classes.
    """

    def __init__(self, shared: np.ndarray, names: Sequence[str] | None = None) -> None:
        self.shared = np.asarray(shared)
        self.names = list(names) if names is not None else [str(i) for i in range(len(shared))]

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Compare the clusters that a fitted PRCut gives to the rows of X with their classes."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y: Any, labels: np.ndarray, *, ax: Any = None) -> Self:
        """Compare classes, numbers or names, with clusters from 0; −1 is in no cluster."""
        names, codes = np.unique(np.asarray(y), return_inverse=True)
        labels = np.asarray(labels)
        shared = count_shared(codes.reshape(-1), labels, len(names), int(labels.max()) + 1)
        return cls(shared, [str(name) for name in names]).plot(ax)

    def _draw(self, ax: Any) -> None:
        names = self.names if len(self.names) <= MOST_TICKS else None
        draw_matched(ax, self.shared, "tab:green", "% of the class", names)
        ax.set_xlabel("cluster")
        if names is None:
            ax.set_ylabel(f"{len(self.names)} classes")


class MovesDisplay(_MatrixDisplay):
    """Rows that moved between two clusterings, ordered so that matches are on the diagonal.

    Parameters
    ----------
    shared : integer array, shape (n_clusters of the first, n_clusters of the second)
    names : pair of str
        Names of the two clusterings.
    """

    def __init__(self, shared: np.ndarray, names: tuple[str, str] = ("first", "second")) -> None:
        self.shared, self.names = np.asarray(shared), names

    @classmethod
    def from_estimators(cls, first: Any, second: Any, X: Any, *, ax: Any = None) -> Self:
        """Compare what two fitted estimators predict for the rows of X."""
        return cls.from_predictions(first.predict(X), second.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, first: np.ndarray, second: np.ndarray, *, ax: Any = None) -> Self:
        """Compare two sets of labels from 0 of the same rows; −1 is in no cluster."""
        first, second = np.asarray(first), np.asarray(second)
        sizes = int(first.max()) + 1, int(second.max()) + 1
        return cls(count_shared(first, second, *sizes)).plot(ax)

    def _draw(self, ax: Any) -> None:
        draw_matched(ax, self.shared, "tab:purple", f"% of the cluster of {self.names[0]}")
        ax.set_xlabel(f"cluster of {self.names[1]}", parse_math=False)
        ax.set_ylabel(f"cluster of {self.names[0]}", parse_math=False)
