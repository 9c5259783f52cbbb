"""From and to data: embeddings, near-duplicates, samples, names and centroids."""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.curate.dedup import find_duplicates as find_duplicates
    from prcut.curate.names import name_clusters as name_clusters
    from prcut.curate.sample import draw_sample as draw_sample

_HOME = {"draw_sample": "sample", "find_duplicates": "dedup", "name_clusters": "names"}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
