"""Displays of a clustering, in the style of scikit-learn's.

Make a display with ``from_estimator`` or ``from_predictions``, or from its own arrays, and draw it
with ``plot(ax=None)``, which sets ``ax_`` and ``figure_``.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.numerics.matching import count_shared, match_counts

if TYPE_CHECKING:
    from typing_extensions import Self

# rows drawn on a map: more only cover one another
MOST_DRAWN = 200_000
# with more clusters, single bars and numbers are too small to read
_MOST_NAMED = 40
# red, green and blue of rows with label −1
_NO_CLUSTER = 0.75, 0.75, 0.75
# lines or columns of a matrix that are labelled
_MOST_TICKS = 25
# longer class names leave no room for the picture
_NAME_LENGTH = 24
# pixels on each side of a matrix: larger tables are pooled
_MATRIX_PIXELS = 360
# multiples of it modulo 1 are evenly spread, however many there are
_GOLDEN_RATIO = 0.6180339887
# saturation and value: all hues stay readable on white and on black
_TONES = np.array([[0.75, 0.82], [0.45, 0.80], [0.60, 0.66]])


def cluster_colors(n_clusters: int) -> np.ndarray:
    """Choose colours of clusters, float, shape (n_clusters, 3): red, green, blue from 0 to 1.

    Up to ten clusters have matplotlib's colours; more have evenly spread hues in three tones.
    """
    import matplotlib  # not at the top: it takes longer to load than most commands
    from matplotlib.colors import hsv_to_rgb

    ten = np.array(matplotlib.color_sequences["tab10"])
    if n_clusters <= len(ten):
        return ten[:n_clusters]
    number = np.arange(n_clusters)
    hue = (0.55 + number * _GOLDEN_RATIO) % 1
    return np.asarray(hsv_to_rgb(np.column_stack([hue, _TONES[number % len(_TONES)]])))


class _Display:
    """Base of the displays: each draws its arrays on axes."""

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


class ClusterMapDisplay(_Display):
    """Map of the rows, coloured by cluster, grey for −1; large data are sampled.

    Parameters
    ----------
    coords : array, shape (n_samples, 2)
    labels : integer array, shape (n_samples,)
    n_clusters : int, optional
        By default the largest label + 1.
    names : sequence of str, optional
        Names written on the clusters, by default their numbers, if there are at most 40.
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
    def from_estimator(cls, estimator: Any, X: Any, *, seed: int = 0, ax: Any = None) -> Self:
        """Draw the rows of X by the input of the last layer of a fitted PRCut."""
        found = estimator.inspect(X, only="map", seed=seed)
        return cls(found.coords, found.labels, found.n_clusters).plot(ax)

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
        if self.n_clusters > _MOST_NAMED:
            return
        from matplotlib.patheffects import withStroke

        font: Any = {"ha": "center", "va": "center", "fontsize": 9, "fontweight": "bold"}
        outline = [withStroke(linewidth=2.5, foreground=ax.get_facecolor())]
        for number in np.unique(self.labels[self.labels >= 0]).tolist():
            inside = self.coords[self.labels == number]
            # the row nearest to the median: the median itself may lie in another cluster
            middle = inside[np.abs(inside - np.median(inside, 0)).sum(1).argmin()]
            name = str(number) if self.names is None else self.names[number]
            drawn = ax.text(*middle, name, path_effects=outline, clip_on=True, **font)
            drawn.set_in_layout(False)  # maps of the same rows have the same size


class ClusterSizesDisplay(_Display):
    """Rows per cluster: bars, or a curve of sorted sizes for many clusters. Dashed: the mean."""

    def __init__(self, sizes: np.ndarray) -> None:
        self.sizes = np.asarray(sizes)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Count the rows of X that a fitted PRCut puts in each cluster."""
        return cls.from_predictions(estimator.predict(X), estimator.assigner_.n_clusters, ax=ax)

    @classmethod
    def from_predictions(cls, labels: np.ndarray, n_clusters: int = 0, *, ax: Any = None) -> Self:
        """Count labels from 0; −1 is no cluster."""
        labels = np.asarray(labels)
        return cls(np.bincount(labels[labels >= 0], minlength=n_clusters)).plot(ax)

    def _draw(self, ax: Any) -> None:
        from matplotlib import rcParams

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
        color = rcParams["text.color"]
        ax.axhline(self.sizes.mean(), color=color, lw=0.8, ls="--", alpha=0.7)
        ax.set_ylabel("rows")
        ax.yaxis.set_major_formatter("{x:,.0f}")


class CutMatrixDisplay(_Display):
    """Percentage of every cluster's weight (a row) that goes to each other cluster (a column).

    Parameters
    ----------
    links : array, shape (n_clusters, n_clusters)
        Weight between clusters, and inside them on the diagonal:
        :func:`prcut.numerics.cuts.cluster_links`.
    """

    _size = (4.8, 4.3)

    def __init__(self, links: np.ndarray) -> None:
        self.links = np.asarray(links, float)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Draw the clusters of X on the neighbour graph of X."""
        found = estimator.inspect(X, only="cut")
        if found.links is None:
            raise InvalidInputError(f"n_clusters={found.n_clusters} is too large for a matrix.")
        return cls(found.links).plot(ax)

    def _draw(self, ax: Any) -> None:
        percent = _percent_of_rows(self.links)
        np.fill_diagonal(percent, np.nan)  # the weight inside would outshine the rest
        numbers = [str(number) for number in range(len(percent))]
        _draw_matrix(ax, percent, "tab:blue", "% of the cluster's weight", numbers, numbers)
        ax.set(xlabel="to cluster", ylabel="from cluster")


class ConfusionDisplay(_Display):
    """Classes against clusters, ordered so that matched ones are on the diagonal.

    Parameters
    ----------
    shared : integer array, shape (n_classes, n_clusters)
        Number of rows in both: :func:`prcut.numerics.matching.count_shared`.
    names : sequence of str, optional
        Names of the classes.
    """

    _size = (4.8, 4.3)

    def __init__(self, shared: np.ndarray, names: Sequence[str] | None = None) -> None:
        self.shared = np.asarray(shared)
        self.names = list(names) if names is not None else [str(i) for i in range(len(shared))]

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Compare the clusters that a fitted PRCut gives to the rows of X with their classes."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y: Any, labels: np.ndarray, *, ax: Any = None) -> Self:
        """Compare classes, numbers or names, with clusters from 0; −1 is no cluster."""
        names, codes = np.unique(np.asarray(y), return_inverse=True)
        labels = np.asarray(labels)
        shared = count_shared(codes.reshape(-1), labels, len(names), int(labels.max()) + 1)
        return cls(shared, [str(name) for name in names]).plot(ax)

    def _draw(self, ax: Any) -> None:
        classes, clusters = match_counts(self.shared)
        # clusters in the order of the classes they match, then the others, largest first
        rest = np.setdiff1d(np.arange(self.shared.shape[1]), clusters)
        by_size = np.argsort(-self.shared[:, rest].sum(0), kind="stable")
        order = np.concatenate([clusters[np.argsort(classes)], rest[by_size]])
        percent = _percent_of_rows(self.shared[:, order])
        short = [shorten(name, _NAME_LENGTH, placeholder="…") for name in self.names]
        _draw_matrix(ax, percent, "tab:green", "% of the class", short, [*map(str, order)])
        ax.set(xlabel="cluster", ylabel="class")


def _percent_of_rows(table: np.ndarray) -> Any:
    """Divide every row by its sum, in percent; a row of zeros stays zero."""
    total = table.sum(1, keepdims=True)
    return np.divide(100 * table, total, out=np.zeros(table.shape), where=total > 0)


def _draw_matrix(
    ax: Any, values: np.ndarray, color: str, label: str, lines: list[str], columns: list[str]
) -> None:
    """Draw a table as a picture, with the names of its lines and columns if they are few."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    for axis, length in enumerate(values.shape):
        if length > _MATRIX_PIXELS:  # the maximum of each pool, so that no peak is lost
            starts = np.linspace(0, length, _MATRIX_PIXELS, endpoint=False).astype(int)
            values = np.fmax.reduceat(values, starts, axis=axis)
    picture = ax.imshow(
        values,
        # zero is nearly transparent, which suits any background
        cmap=LinearSegmentedColormap.from_list("fading", [to_rgba(color, 0.04), to_rgba(color)]),
        vmin=0,
        aspect="equal" if max(values.shape) <= 2 * min(values.shape) else "auto",
        extent=(-0.5, len(columns) - 0.5, len(lines) - 0.5, -0.5),
        interpolation="none",
    )
    bar = ax.figure.colorbar(picture, ax=ax, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(label)
    # positions of many are no numbers of clusters, so they have no ticks
    n_lines = len(lines) if len(lines) <= _MOST_TICKS else 0
    n_columns = len(columns) if len(columns) <= _MOST_TICKS else 0
    ax.set_yticks(range(n_lines), lines[:n_lines], fontsize=8, parse_math=False)
    ax.set_xticks(range(n_columns), columns[:n_columns], fontsize=8)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
