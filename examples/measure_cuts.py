"""Measure any clustering on one graph, with a certificate.

The ratio cut of four clusterings of the same rows, measured on the same graph, and a lower bound
that no partition into ten clusters can go below. One is that of k-means, refined row by row.

    python examples/measure_cuts.py
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits

from prcut import PRCut, build_graph, ratio_cut, spectral_lower_bound
from prcut.search import refine_labels


def main() -> None:
    rows = load_digits().data[:1000]
    rows = rows[:, rows.std(0) > 0]
    graph = build_graph(rows, n_neighbors=10, max_components=10)
    adjacency = graph.to_scipy()
    adjacency.indices = adjacency.indices.astype(np.int32)  # scikit-learn wants 32 bits
    adjacency.indptr = adjacency.indptr.astype(np.int32)

    kmeans = KMeans(n_clusters=10, n_init=10, random_state=0).fit_predict(rows)
    spectral = SpectralClustering(n_clusters=10, affinity="precomputed", random_state=0)
    prcut = PRCut(n_clusters=10, balance_weight=0.0, random_state=0)
    found = {
        "KMeans": kmeans,
        "KMeans, refined": refine_labels(graph, kmeans.astype(int), 10, balance_weight=0.0),
        "SpectralClustering": spectral.fit_predict(adjacency),
        "PRCut, no balance": prcut.fit(rows, graph=graph).labels_,
    }
    cuts = {
        name: ratio_cut(graph.weight, torch.from_numpy(labels.astype(np.int64)), 10).item()
        for name, labels in found.items()
    }
    bound = spectral_lower_bound(graph.weight, 10)
    for name, cut in cuts.items():
        print(f"{name}: ratio cut {cut:.2f}, at most {bound.ratio(cut):.2f} times the optimum")
    print(f"no partition into 10 clusters is below {bound.value:.2f}")

    figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
    axes.barh(list(cuts), list(cuts.values()), color="tab:blue")
    axes.axvline(bound.value, color="tab:red", label="lower bound")
    axes.invert_yaxis()
    axes.set_xlabel("ratio cut")
    axes.legend()
    figure.savefig("cuts.svg")


if __name__ == "__main__":
    main()
