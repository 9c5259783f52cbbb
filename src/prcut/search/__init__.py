"""From a similarity graph to its partition with the lowest objective."""

from prcut.search.merge import MergeTree
from prcut.search.partition import Partition, find_partition, merge_clusters, refine_labels

__all__ = ["MergeTree", "Partition", "find_partition", "merge_clusters", "refine_labels"]
