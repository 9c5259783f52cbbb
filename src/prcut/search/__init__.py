"""From a similarity graph to its partition with the lowest objective."""

from prcut.search.merge import MergeTree
from prcut.search.partition import find_partition, merge_clusters, refine_labels
from prcut.search.problem import Partition

__all__ = ["MergeTree", "Partition", "find_partition", "merge_clusters", "refine_labels"]
