"""The map that readers explore: points as small arrays, and what some of the rows stand for.

The page has at most :data:`MOST_POINTS` points, and texts or images of as many as fit the file.
``templates/explorer.js`` draws them; it writes what it shows as text, never as markup.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prcut.errors import InvalidInputError
from prcut.ui.colors import cluster_colors
from prcut.ui.report.inspection import Inspection, RowExamples
from prcut.ui.report.parts import RowContents
from prcut.ui.report.row_contents import RowLabels

# points on the map: a random sample of more rows looks the same and still moves smoothly
MOST_POINTS = 100_000
# rows whose text or image is read for the map, and bytes of these that the page holds
_MOST_TEXTS, _MOST_IMAGES, _MOST_BYTES = 20_000, 3_000, 2_000_000
# 255 says that a fraction is unknown
_FRACTIONS, _UNKNOWN = 254, 255


def check_names(names: Sequence[str] | None, n_clusters: int) -> list[str]:
    """Return the names of the clusters, empty where there are none."""
    if names is None:
        return [""] * n_clusters
    if isinstance(names, str) or len(names) != n_clusters:
        raise InvalidInputError(
            f"{len(names)} names for n_clusters={n_clusters}; pass one name per cluster."
        )
    return [" ".join(str(name).split()) for name in names]


def choose_points(inspection: Inspection, examples: Sequence[RowExamples]) -> np.ndarray:
    """Choose positions among the inspected rows: examples of every cluster, others at random."""
    rng = np.random.default_rng(0)
    per_cluster = max(1, _MOST_IMAGES // (2 * max(1, len(examples))))
    kinds = [kind[:per_cluster] for one in examples for kind in (one.typical, one.ambiguous)]
    first = np.unique(np.searchsorted(inspection.rows, np.concatenate(kinds)))
    first = rng.permutation(first)[: MOST_POINTS // 2]
    others = np.ones(len(inspection.rows), bool)
    others[first] = False
    drawn = rng.permutation(np.flatnonzero(others))[: MOST_POINTS - len(first)]
    return np.concatenate([first, drawn])


def choose_contents(
    inspection: Inspection, points: np.ndarray, contents: RowContents
) -> np.ndarray:
    """Choose the rows whose text or image the map may show: those of the first points."""
    most = 0 if contents.texts is None else _MOST_TEXTS
    most = most if contents.images is None else _MOST_IMAGES
    return np.asarray(inspection.rows[points[:most]])


def collect_points(
    inspection: Inspection,
    points: np.ndarray,
    contents: Mapping[int, tuple[str | None, str | None]],
    names: Sequence[str],
    classes: RowLabels | None = None,
) -> dict[str, Any]:
    """Collect what the script of the page draws, ready for JSON."""
    labels = inspection.labels[points]
    known = _keep_contents(inspection.rows[points].tolist(), contents)
    arrays = {
        **dict(zip("xy", _quantise(inspection.coords[points]), strict=True)),
        "row": inspection.rows[points],
        "label": labels,
        "second": inspection.runner_up[points] + 1,  # 0: there is none
        "confidence": _as_bytes(inspection.confidence[points]),
        "typical": _as_bytes(_rank_distances(inspection)[points]),
    }
    if inspection.inside is not None:
        arrays["inside"] = _as_bytes(inspection.inside[points])
    if classes is not None:
        arrays["class"] = classes.codes[points]
    return {
        "n": len(points),
        "n_known": len(known),
        "texts": [text for text, _ in known if text is not None],
        "images": [image for _, image in known if image is not None],
        "classes": [] if classes is None else classes.names,
        "sizes": inspection.sizes.tolist(),
        "layers": _list_layers(inspection, names),
        "arrays": {name: _encode(values) for name, values in arrays.items()},
    }


def _keep_contents(
    rows: list[int], contents: Mapping[int, tuple[str | None, str | None]]
) -> list[tuple[str | None, str | None]]:
    """Keep the contents of the first rows, as many as the page may hold."""
    known, size = [], 0
    for row in rows:
        text, image = contents.get(row, (None, None))
        size += len((text or "").encode()) + len(image or "") + 4
        if size > _MOST_BYTES or (text is None and image is None):
            break
        known.append((text, image))
    return known


def _list_layers(inspection: Inspection, names: Sequence[str]) -> list[dict[str, Any]]:
    """List the layers, the finest first: the group, the colour and the name of every cluster."""
    from matplotlib.colors import to_hex

    finest = np.arange(inspection.n_clusters)
    layers = []
    for groups in (finest, *inspection.layers):
        n_groups = int(groups.max()) + 1
        hexes = [to_hex(tuple(color)) for color in cluster_colors(n_groups)]
        # a coarser group is named after its largest clusters
        named = list(names) if groups is finest else _join(inspection, groups, names)
        layers.append({"groups": groups.tolist(), "colors": hexes, "names": named})
    return layers


def _join(inspection: Inspection, groups: np.ndarray, names: Sequence[str]) -> list[str]:
    """Name every group after its two largest clusters; without names it has a number."""
    order = np.argsort(-inspection.sizes, kind="stable")
    joined = []
    for group in range(int(groups.max()) + 1):
        inside = [names[cluster] for cluster in order[groups[order] == group][:2]]
        joined.append(", ".join(name for name in inside if name))
    return joined


def _quantise(coords: np.ndarray) -> np.ndarray:
    """Scale coordinates to whole numbers of 16 bits, both by the same factor."""
    low, high = coords.min(0), coords.max(0)
    scale = 65535 / max(float((high - low).max()), 1e-12)
    centred = (coords - (low + high) / 2) * scale + 32767.5
    whole: np.ndarray = np.nan_to_num(centred).clip(0, 65535).round().astype(np.uint16)
    return np.ascontiguousarray(whole.T)


def _as_bytes(fractions: np.ndarray) -> np.ndarray:
    """Round fractions to bytes from 0 to 254; 255 is unknown."""
    known = np.nan_to_num(fractions).clip(0, 1) * _FRACTIONS
    return np.where(np.isnan(fractions), _UNKNOWN, known.round()).astype(np.uint8)


def _rank_distances(inspection: Inspection) -> np.ndarray:
    """Rank rows by the distance to the mean of their cluster, from 0, the nearest, to 1."""
    order = np.lexsort((inspection.distances, inspection.labels))
    starts = np.cumsum(inspection.sizes) - inspection.sizes
    sorted_labels = inspection.labels[order]
    rank = np.empty(len(order))
    rank[order] = (np.arange(len(order)) - starts[sorted_labels]) / inspection.sizes[sorted_labels]
    return rank


def _encode(values: np.ndarray) -> dict[str, str]:
    """Encode whole numbers from 0 in as few bytes as hold the largest, little-endian."""
    kind = np.min_scalar_type(int(values.max(initial=0))).newbyteorder("<")
    if kind.itemsize == 8:  # scripts have no arrays of plain 64-bit integers
        kind = np.dtype("<f8")
    code = base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()
    return {"kind": kind.str[1:], "data": code}
