"""The interactive map of a report: points as whole numbers, with texts or images of some rows.

``templates/explorer.js`` draws them; it shows strings as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prcut.ui.plot import cluster_colors
from prcut.ui.report.inspection import Inspection, RowExamples
from prcut.ui.report.row_contents import RowLabels

# points on the map: a random sample of more rows looks the same and still moves smoothly
MOST_POINTS = 50_000
# examples of clusters: they come first, and the page holds the texts or images of the first rows
_MOST_EXAMPLES = 3000
# bytes of texts and images in the page
_MOST_BYTES = 2_000_000
# fractions are bytes from 0 to this; 255 is unknown
_FRACTIONS = 254


def choose_points(inspection: Inspection, examples: Sequence[RowExamples]) -> np.ndarray:
    """Choose positions among the inspected rows: examples of every cluster, others at random."""
    rng = np.random.default_rng(0)
    per_cluster = max(1, _MOST_EXAMPLES // (2 * max(1, len(examples))))
    kinds = [kind[:per_cluster] for one in examples for kind in (one.typical, one.ambiguous)]
    first = np.unique(np.searchsorted(inspection.rows, np.concatenate(kinds)))
    first = rng.permutation(first)[: MOST_POINTS // 2]
    others = np.ones(len(inspection.rows), bool)
    others[first] = False
    drawn = rng.permutation(np.flatnonzero(others))[: MOST_POINTS - len(first)]
    return np.concatenate([first, drawn])


def collect_points(
    inspection: Inspection,
    points: np.ndarray,
    contents: Mapping[int, tuple[str | None, str | None]],
    names: Sequence[str],
    classes: RowLabels | None = None,
) -> dict[str, Any]:
    """Collect the data of the script, ready for JSON."""
    from matplotlib.colors import to_hex

    labels = inspection.labels[points]
    known, n_bytes = [], 0
    for row in inspection.rows[points].tolist():
        text, image = contents.get(row, (None, None))
        n_bytes += len((text or "").encode()) + len(image or "") + 4
        if n_bytes > _MOST_BYTES or text is image is None:
            break
        known.append((text, image))
    # the most typical row of a cluster has rank 0, the least typical nearly 1
    order = np.lexsort((inspection.distances, inspection.labels))
    starts = np.cumsum(inspection.sizes) - inspection.sizes
    sorted_labels = inspection.labels[order]
    rank = np.empty(len(order))
    rank[order] = (np.arange(len(order)) - starts[sorted_labels]) / inspection.sizes[sorted_labels]
    arrays = {
        **dict(zip("xy", _quantise(inspection.coords[points]), strict=True)),
        "row": inspection.rows[points],
        "label": labels,
        "second": inspection.runner_up[points] + 1,  # 0: there is none
        "confidence": _as_bytes(inspection.confidence[points]),
        "typical": _as_bytes(rank[points]),
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
        "names": list(names),
        "colors": [to_hex(tuple(color)) for color in cluster_colors(inspection.n_clusters)],
        "points": {name: values.tolist() for name, values in arrays.items()},
    }


def _quantise(coords: np.ndarray) -> np.ndarray:
    """Scale coordinates to whole numbers from 0 to 65535, both by the same factor."""
    low, high = coords.min(0), coords.max(0)
    scale = 65535 / max(float((high - low).max()), 1e-12)
    whole: np.ndarray = ((coords - low) * scale).round().astype(np.int64).T
    return whole


def _as_bytes(fractions: np.ndarray) -> np.ndarray:
    """Round fractions to bytes from 0 to 254; 255 is unknown."""
    known = np.nan_to_num(fractions).clip(0, 1) * _FRACTIONS
    return np.where(np.isnan(fractions), 255, known.round()).astype(np.int64)
