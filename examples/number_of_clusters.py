"""How many clusters: read the merge tree.

A fit with more clusters than there are groups, and what it costs to merge them again. The heights
of the tree are costs: low merges join parts of one group, high ones join groups. There are six.

    python examples/number_of_clusters.py
"""

import matplotlib.pyplot as plt
from scipy.cluster.hierarchy import dendrogram
from sklearn.datasets import make_blobs

from prcut import PRCut


def main() -> None:
    rows, _ = make_blobs(800, n_features=10, centers=6, cluster_std=2.0, random_state=3)
    model = PRCut(n_clusters=12, random_state=0).fit(rows)
    tree = model.merge_tree_

    linkage = tree.linkage()
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    dendrogram(linkage, ax=axes, color_threshold=linkage[-5, 2] - 1e-9)
    axes.set_xlabel("cluster")
    axes.set_ylabel("cost of the merge")
    figure.savefig("merge-tree.svg")

    for n_left, cost in zip(range(11, 0, -1), tree.costs, strict=True):
        print(f"{n_left:>2} clusters left: the merge added {cost:.3f}")


if __name__ == "__main__":
    main()
