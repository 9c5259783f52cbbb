"""How many clusters: read the merge tree.

A fit with more clusters than there are groups, and what it costs to merge them again. The heights
of the tree are costs: low merges join parts of one group, high ones join groups. There are six.

    python examples/number_of_clusters.py
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram
from sklearn.datasets import make_blobs

from prcut import PRCut


def main() -> None:
    rows, _ = make_blobs(800, n_features=10, centers=6, cluster_std=2.0, random_state=3)
    model = PRCut(n_clusters=12, random_state=0).fit(rows)
    tree = model.merge_tree_

    # SciPy's form: the two children, the height, and the number of leaves beneath
    leaves = np.ones(2 * model.n_clusters - 1)
    for number, pair in enumerate(tree.children):
        leaves[model.n_clusters + number] = leaves[pair].sum()
    heights = np.maximum.accumulate(tree.costs)
    linkage = np.column_stack([tree.children, heights, leaves[model.n_clusters :]])

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    dendrogram(linkage.astype(float), ax=axes, color_threshold=heights[-5] - 1e-9)
    axes.set_xlabel("cluster")
    axes.set_ylabel("cost of the merge")
    figure.savefig("merge-tree.svg")

    for n_left, cost in zip(range(11, 0, -1), tree.costs, strict=True):
        print(f"{n_left:>2} clusters left: the merge added {cost:.3f}")


if __name__ == "__main__":
    main()
