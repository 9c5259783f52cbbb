"""Pictures of a clustering, in the way of scikit-learn's displays.

Every display is made by ``from_estimator`` or ``from_predictions`` (or from its own figures) and
drawn by ``plot(ax=None)``, after which ``ax_`` and ``figure_`` are there to go on with:

>>> import numpy as np
>>> display = ClusterSizesDisplay.from_predictions(np.array([0, 0, 1]))
>>> display.plot().ax_.get_ylabel()  # doctest: +SKIP
'rows'

Colours come from matplotlib's settings, but for those of the clusters, which are the same in every
picture and read on white and on black.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prcut.assignment import hidden_rows, rank_clusters
from prcut.cuts import cluster_links
from prcut.errors import InvalidInputError, PRCutError
from prcut.graph import SimilarityGraph
from prcut.matching import count_shared, match_counts
from prcut.projection import learn_projection

__all__ = [
    "ClusterMapDisplay",
    "ClusterSizesDisplay",
    "ConfidenceDisplay",
    "ConfusionDisplay",
    "CutMatrixDisplay",
    "HistoryDisplay",
    "MovesDisplay",
    "cluster_colors",
    "density_image",
]

# ten that are told apart by hue and by lightness, for eyes that miss hues too
_TEN = (
    *("#3b7dd8", "#ee7733", "#2a9d63", "#d1495b", "#8e63ce"),
    *("#a5703f", "#e377c2", "#7f8b99", "#b3a614", "#20b2c4"),
)
_ACCENT = "#3b7dd8"
# above so many, numbers and bars of single clusters are too small to read
_MOST_NAMED = 40
# pixels of a map's longer side; and from how many rows on a dot has which radius, in pixels
_MAP_PIXELS = 640
_MATRIX_PIXELS = 360
_RADIUS = ((0, 4), (1000, 3), (5000, 2), (50_000, 1), (400_000, 0))


def cluster_colors(n_clusters: int) -> np.ndarray:
    """Colours of clusters, float, shape (n_clusters, 3), of red, green and blue from 0 to 1.

    Beyond ten, hues and lightnesses spread evenly (in the OKLab space, where equal steps look
    equal).

    >>> cluster_colors(100).shape
    (100, 3)
    """
    if n_clusters <= len(_TEN):
        few = [[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in _TEN]
        return np.array(few)[:n_clusters]
    # steps of the plastic number: no two of many points come near one another
    number = np.arange(n_clusters)
    hue = 2 * np.pi * (0.1 + number / 1.324717957)
    lightness = 0.5 + 0.27 * ((0.5 + number / 1.324717957**2) % 1)
    chroma = 0.14
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    # Ottosson's OKLab to linear sRGB
    cone = (
        np.stack(
            [
                lightness + 0.3963377774 * a + 0.2158037573 * b,
                lightness - 0.1055613458 * a - 0.0638541728 * b,
                lightness - 0.0894841775 * a - 1.2914855480 * b,
            ]
        )
        ** 3
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip((to_rgb @ cone).T, 0, 1)
    rgb: np.ndarray = np.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return rgb


def density_image(
    places: np.ndarray, labels: np.ndarray, colors: np.ndarray, n_pixels: int = _MAP_PIXELS
) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """A picture of rows, however many: colours mixed in every pixel, denser places more opaque.

    Parameters
    ----------
    places : array, shape (n_samples, 2)
    labels : integer array, shape (n_samples,)
    colors : array, shape (n_clusters, 3)
    n_pixels : int
        Of the longer side.

    Returns
    -------
    image : uint8 array, shape (height, width, 4)
        Transparent where there are no rows; the first line is the lowest.
    extent : tuple of float
        Left, right, bottom, top.
    """
    from scipy.ndimage import convolve

    radius = next(radius for least, radius in reversed(_RADIUS) if len(places) >= least)
    low, high = places.min(0).astype(float), places.max(0).astype(float)
    span = np.maximum(high - low, 1e-9)
    cell = span.max() / (n_pixels - 2 * radius - 1)
    width, height = (int(one) + 2 * radius + 1 for one in np.ceil(span / cell))
    column, row = ((places - low) / cell).astype(np.int64).T + radius
    pixel = np.minimum(row, height - 1) * width + np.minimum(column, width - 1)
    # in linear light, or mixtures would be too dark
    mixed = [np.bincount(pixel, minlength=width * height).astype(float)]
    mixed += [np.bincount(pixel, weight, width * height) for weight in (colors**2.2).T[:, labels]]
    planes = np.stack(mixed).reshape(4, height, width)
    if radius:
        steps = np.arange(-radius, radius + 1)
        disc = (steps[:, None] ** 2 + steps**2 <= (radius + 0.3) ** 2).astype(float)
        planes = np.stack([convolve(plane, disc, mode="constant") for plane in planes])
    count = planes[0]
    color = np.divide(planes[1:], count, out=np.zeros_like(planes[1:]), where=count > 0.5)
    typical = np.quantile(count[count > 0.5], 0.98)
    opacity = 0.3 + 0.7 * np.minimum(np.log1p(count) / np.log1p(max(typical, 2.0)), 1)
    image = np.concatenate([np.clip(color, 0, 1) ** (1 / 2.2), [opacity * (count > 0.5)]])
    left, bottom = low - radius * cell
    extent = left, left + width * cell, bottom, bottom + height * cell
    return (255 * image.transpose(1, 2, 0)).round().astype(np.uint8), extent


class _Display:
    """What displays share: axes of their own where none are given."""

    ax_: Any
    figure_: Any

    def _start(self, ax: Any, size: tuple[float, float] = (4.8, 3.2)) -> Any:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise PRCutError(
                f"plots need matplotlib ({error}): pip install 'prcut[plot]'."
            ) from error

        if ax is None:
            _, ax = plt.subplots(figsize=size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class ClusterMapDisplay(_Display):
    """Map of the rows, coloured by cluster; fit for millions of rows.

    Parameters
    ----------
    places : array, shape (n_samples, 2)
    labels : integer array, shape (n_samples,)
    n_clusters : int, optional
        By default the largest label + 1.
    names : sequence of str, optional
        What is written on the clusters, by default their numbers, as long as they are few.
    """

    def __init__(
        self,
        places: np.ndarray,
        labels: np.ndarray,
        n_clusters: int | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        self.places, self.labels = np.asarray(places), np.asarray(labels)
        if len(self.places) != len(self.labels) or not len(self.labels):
            raise InvalidInputError(
                f"{len(self.places)} places for {len(self.labels)} labels; they must agree."
            )
        self.n_clusters = n_clusters or int(self.labels.max()) + 1
        self.names = names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        seed: int = 0,
        ax: Any = None,
    ) -> ClusterMapDisplay:
        """Rows of X by what the last layer of a fitted PRCut sees of them."""
        assigner, rows = estimator._ready(X)
        labels = rank_clusters(assigner, rows).labels
        places = _project(hidden_rows(assigner, rows), seed)
        return cls(places, labels, assigner.n_clusters).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        X: Any,
        labels: np.ndarray,
        *,
        seed: int = 0,
        ax: Any = None,
    ) -> ClusterMapDisplay:
        """Rows of X as they are, with anybody's labels."""
        return cls(_project(np.asarray(X, np.float32), seed), labels).plot(ax)

    def plot(self, ax: Any = None) -> ClusterMapDisplay:
        """Draw it."""
        ax = self._start(ax, (5.2, 5.2))
        image, extent = density_image(self.places, self.labels, cluster_colors(self.n_clusters))
        ax.imshow(image, origin="lower", extent=extent, interpolation="none")
        ax.axis("off")
        for number in np.unique(self.labels) if self.n_clusters <= _MOST_NAMED else ():
            self._name(ax, int(number))
        return self

    def _name(self, ax: Any, number: int) -> None:
        import matplotlib as mpl
        from matplotlib.patheffects import withStroke

        inside = self.places[self.labels == number]
        # the row nearest to the median: the median itself may lie in another cluster
        middle = inside[np.abs(inside - np.median(inside, 0)).sum(1).argmin()]
        halo = withStroke(linewidth=2.5, foreground=mpl.rcParams["axes.facecolor"])
        text = str(number) if self.names is None else self.names[number]
        style: dict[str, Any] = {"fontsize": 9, "fontweight": "bold", "path_effects": [halo]}
        drawn = ax.text(*middle, text, ha="center", va="center", clip_on=True, **style)
        drawn.set_in_layout(False)  # maps of the same rows have the same size


class ClusterSizesDisplay(_Display):
    """Rows of every cluster: bars, or sorted sizes where clusters are many; dashed, the mean."""

    def __init__(self, sizes: np.ndarray) -> None:
        self.sizes = np.asarray(sizes)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        ax: Any = None,
    ) -> ClusterSizesDisplay:
        """Of the clusters that a fitted PRCut gives to the rows of X."""
        n_clusters = estimator.assigner_.n_clusters
        return cls(np.bincount(estimator.predict(X), minlength=n_clusters)).plot(ax)

    @classmethod
    def from_predictions(
        cls, labels: np.ndarray, n_clusters: int = 0, *, ax: Any = None
    ) -> ClusterSizesDisplay:
        """Of labels, from 0."""
        return cls(np.bincount(labels, minlength=n_clusters)).plot(ax)

    def plot(self, ax: Any = None) -> ClusterSizesDisplay:
        """Draw it."""
        ax = self._start(ax)
        n_clusters = len(self.sizes)
        if n_clusters <= _MOST_NAMED:
            ax.bar(range(n_clusters), self.sizes, color=cluster_colors(n_clusters), width=0.8)
            step = 1 if n_clusters <= 20 else 5
            ax.set_xticks(range(0, n_clusters, step))
            ax.set_xlabel("cluster")
        else:
            ax.fill_between(
                range(n_clusters), np.sort(self.sizes)[::-1], color=_ACCENT, step="post", lw=0
            )
            ax.set_xlabel("clusters, the largest first")
            ax.margins(x=0)
        ax.axhline(self.sizes.mean(), color=_text_color(), lw=0.8, ls=(0, (4, 3)), alpha=0.7)
        ax.set_ylabel("rows")
        ax.yaxis.set_major_formatter("{x:,.0f}")
        _plain(ax)
        return self


class HistoryDisplay(_Display):
    """Training: the objective, its cut, and the confidence, over the steps."""

    def __init__(self, history: Mapping[str, np.ndarray]) -> None:
        self.history = history

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> HistoryDisplay:
        """Of a fitted PRCut."""
        return cls(estimator.history_).plot(ax)

    def plot(self, ax: Any = None) -> HistoryDisplay:
        """Draw it."""
        ax = self._start(ax)
        step = np.asarray(self.history["step"])
        (first,) = ax.plot(step, self.history["objective"], color=_ACCENT, lw=1.6)
        (second,) = ax.plot(step, self.history["cut"], color="#ee7733", lw=1.3)
        ax.set_xlabel("step")
        ax.set_ylabel("objective, cut")
        ax.set_ylim(bottom=0)
        right = ax.twinx()
        (third,) = right.plot(step, self.history["confidence"], color="#2a9d63", lw=1.3)
        right.set_ylim(0, 1.02)
        right.set_ylabel("confidence")
        names = ["objective", "cut", "confidence"]
        ax.legend(
            [first, second, third],
            names,
            loc="lower center",
            bbox_to_anchor=(0.5, 1),
            ncols=3,
            frameon=False,
            fontsize=8,
            handlelength=1.4,
        )
        _plain(ax)
        right.spines[["top", "left"]].set_visible(False)
        return self


class CutMatrixDisplay(_Display):
    """Share of every cluster's weight (a line) that goes to each other cluster (a column).

    Parameters
    ----------
    links : array, shape (n_clusters, n_clusters)
        Weight between clusters, and inside on the diagonal:
        :func:`prcut.cuts.cluster_links`.
    """

    def __init__(self, links: np.ndarray) -> None:
        self.links = np.asarray(links, float)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        ax: Any = None,
    ) -> CutMatrixDisplay:
        """Of the clusters of X, on the neighbour graph that is built of it."""
        assigner, rows = estimator._ready(X)
        graph = estimator._graph(X if estimator._is_precomputed else rows, estimator._config())
        labels = rank_clusters(assigner, rows).labels
        return cls.from_predictions(graph, labels, assigner.n_clusters, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        graph: SimilarityGraph,
        labels: np.ndarray,
        n_clusters: int | None = None,
        *,
        ax: Any = None,
    ) -> CutMatrixDisplay:
        """Of labels on a graph."""
        import torch

        links = cluster_links(graph.weight, torch.as_tensor(labels), n_clusters)
        return cls(links.numpy()).plot(ax)

    def plot(self, ax: Any = None) -> CutMatrixDisplay:
        """Draw it."""
        ax = self._start(ax, (4.8, 4.3))
        volume = np.maximum(self.links.sum(1, keepdims=True), 1e-300)
        shares = self.links / volume
        np.fill_diagonal(shares, np.nan)  # what stays inside would outshine the rest
        _matrix(ax, 100 * shares, _ACCENT, "% of the cluster's weight")
        ax.set_xlabel("to cluster")
        ax.set_ylabel("from cluster")
        return self


class ConfidenceDisplay(_Display):
    """How sure the assigner is: rows by the probability of their cluster."""

    def __init__(self, confidence: np.ndarray) -> None:
        self.confidence = np.asarray(confidence)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        ax: Any = None,
    ) -> ConfidenceDisplay:
        """Of a fitted PRCut and the rows of X."""
        return cls(rank_clusters(*estimator._ready(X)).confidence).plot(ax)

    @classmethod
    def from_predictions(cls, probs: np.ndarray, *, ax: Any = None) -> ConfidenceDisplay:
        """Of probabilities, shape (n_samples, n_clusters), or the largest of each row."""
        probs = np.asarray(probs)
        return cls(probs if probs.ndim == 1 else probs.max(1)).plot(ax)

    def plot(self, ax: Any = None) -> ConfidenceDisplay:
        """Draw it."""
        ax = self._start(ax)
        counts, edges = np.histogram(self.confidence, np.linspace(0, 1, 41))
        share = 100 * counts / max(1, counts.sum())
        ax.bar(edges[:-1], share, width=np.diff(edges), align="edge", color=_ACCENT, lw=0)
        ax.set_xlim(0, 1)
        ax.set_xlabel("probability of the row's cluster")
        ax.set_ylabel("% of the rows")
        _plain(ax)
        return self


class ConfusionDisplay(_Display):
    """Classes against clusters, ordered so that matched ones stand on the diagonal.

    Parameters
    ----------
    shared : integer array, shape (n_classes, n_clusters)
        Rows that they share: :func:`prcut.matching.count_shared`.
    names : sequence of str, optional
        Of the classes.
    """

    def __init__(self, shared: np.ndarray, names: Sequence[str] | None = None) -> None:
        self.shared = np.asarray(shared)
        self.names = list(names) if names is not None else [str(i) for i in range(len(shared))]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        ax: Any = None,
    ) -> ConfusionDisplay:
        """Of the clusters that a fitted PRCut gives to the rows of X, and their classes."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y: Any, labels: np.ndarray, *, ax: Any = None) -> ConfusionDisplay:
        """Of classes, numbers or names, and clusters from 0."""
        names, codes = np.unique(np.asarray(y), return_inverse=True)
        labels = np.asarray(labels)
        shared = count_shared(codes.reshape(-1), labels, len(names), int(labels.max()) + 1)
        return cls(shared, [str(name) for name in names]).plot(ax)

    def plot(self, ax: Any = None) -> ConfusionDisplay:
        """Draw it."""
        ax = self._start(ax, (4.8, 4.3))
        order = _matched_order(self.shared)
        table = self.shared[:, order]
        share = 100 * table / np.maximum(table.sum(1, keepdims=True), 1)
        names = self.names if len(self.names) <= 25 else None
        _matrix(ax, share, "#2a9d63", "% of the class", lines=names, columns=order)
        ax.set_xlabel("cluster")
        if names is None:
            ax.set_ylabel(f"{len(self.names)} classes")
        return self


class MovesDisplay(_Display):
    """What moved between two clusterings of the same rows, matched ones on the diagonal.

    Parameters
    ----------
    shared : integer array, shape (n_clusters of the first, n_clusters of the second)
    names : pair of str
        Of the two.
    """

    def __init__(self, shared: np.ndarray, names: tuple[str, str] = ("first", "second")) -> None:
        self.shared, self.names = np.asarray(shared), names

    @classmethod
    def from_estimators(
        cls,
        first: Any,
        second: Any,
        X: Any,
        *,
        ax: Any = None,
    ) -> MovesDisplay:
        """Of two fitted estimators with ``predict`` and the rows of X."""
        return cls.from_predictions(first.predict(X), second.predict(X), ax=ax)

    @classmethod
    def from_predictions(
        cls, first: np.ndarray, second: np.ndarray, *, ax: Any = None
    ) -> MovesDisplay:
        """Of two labelings of the same rows, from 0."""
        first, second = np.asarray(first), np.asarray(second)
        sizes = int(first.max()) + 1, int(second.max()) + 1
        return cls(count_shared(first, second, *sizes)).plot(ax)

    def plot(self, ax: Any = None) -> MovesDisplay:
        """Draw it."""
        ax = self._start(ax, (4.8, 4.3))
        order = _matched_order(self.shared)
        table = self.shared[:, order]
        share = 100 * table / np.maximum(table.sum(1, keepdims=True), 1)
        _matrix(ax, share, "#8e63ce", f"% of the cluster of {self.names[0]}", columns=order)
        ax.set_xlabel(f"cluster of {self.names[1]}")
        ax.set_ylabel(f"cluster of {self.names[0]}")
        return self


# -- what displays share ---------------------------------------------------------------------


def _project(rows: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    chosen = np.sort(rng.choice(len(rows), min(len(rows), 6000), replace=False))
    return learn_projection(rows[chosen], seed=seed).place(rows, rng)


def _matched_order(shared: np.ndarray) -> np.ndarray:
    """Columns so that those matched with lines come first, in the order of the lines."""
    lines, columns = match_counts(shared)
    rest = np.setdiff1d(np.arange(shared.shape[1]), columns)
    biggest = np.argsort(-shared[:, rest].sum(0), kind="stable")
    return np.concatenate([columns[np.argsort(lines)], rest[biggest]])


def _text_color() -> Any:
    import matplotlib as mpl

    return mpl.rcParams["text.color"]


def _plain(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3)


def _matrix(
    ax: Any,
    values: np.ndarray,
    color: str,
    label: str,
    *,
    lines: Sequence[str] | None = None,
    columns: np.ndarray | None = None,
) -> None:
    """A table as a picture: from transparent to a colour, so that it reads on any page."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    rgb = to_rgb(color)
    shades = LinearSegmentedColormap.from_list("shades", [(*rgb, 0.04), (*rgb, 1.0)])
    n_lines, n_columns = values.shape
    extent = -0.5, n_columns - 0.5, n_lines - 0.5, -0.5
    values = _pooled(values)
    aspect = "equal" if max(values.shape) <= 2 * min(values.shape) else "auto"
    options: dict[str, Any] = {"aspect": aspect, "extent": extent, "interpolation": "none"}
    picture = ax.imshow(values, cmap=shades, vmin=0, **options)
    ax.figure.colorbar(picture, ax=ax, label=label, shrink=0.8, pad=0.02).outline.set_visible(False)
    if n_lines <= 25:
        ax.set_yticks(range(n_lines), lines if lines is not None else range(n_lines), fontsize=8)
    if n_columns <= 25:
        numbers = range(n_columns) if columns is None else columns
        ax.set_xticks(range(n_columns), numbers, fontsize=8)
    elif columns is not None:
        ax.set_xticks([])  # the order is another than that of the numbers
    if max(values.shape) <= 10:
        most = np.nanmax(values)
        for line, column in np.argwhere(values >= 0.5):
            shade = "white" if values[line, column] > 0.55 * most else None
            ax.text(
                column,
                line,
                f"{values[line, column]:.0f}",
                ha="center",
                va="center",
                fontsize=7,
                **({} if shade is None else {"color": shade}),
            )
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _pooled(values: np.ndarray) -> np.ndarray:
    """The largest of every few lines and columns, where there are more than a picture can show."""
    for axis, length in enumerate(values.shape):
        if length > _MATRIX_PIXELS:
            starts = np.linspace(0, length, _MATRIX_PIXELS, endpoint=False).astype(int)
            values = np.fmax.reduceat(values, starts, axis=axis)
    return values
