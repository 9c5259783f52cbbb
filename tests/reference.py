"""Slow, obvious answers that the library is held against, and small random problems."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from prcut import SimilarityGraph


def random_graph(n_samples: int, seed: int = 0, density: float = 0.5) -> SimilarityGraph:
    """Symmetric float64 weights in (0, 1), about ``density`` of the pairs."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_samples, n_samples)), 1)
    upper *= rng.random((n_samples, n_samples)) < density
    return SimilarityGraph.from_scipy(upper + upper.T)


def mixture(n_samples: int, n_features: int = 16, seed: int = 0) -> np.ndarray:
    """Rows around thirty random centres, float32."""
    rng = np.random.default_rng(seed)
    centers = 3 * rng.normal(size=(30, n_features))
    drawn = centers[rng.integers(30, size=n_samples)] + rng.normal(size=(n_samples, n_features))
    rows: np.ndarray = drawn.astype(np.float32)
    return rows


def random_probs(n_samples: int, n_clusters: int, seed: int = 0, sharpness: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n_samples, n_clusters, generator=generator, dtype=torch.float64)
    return (sharpness * logits).softmax(1)


def random_labels(n_samples: int, n_clusters: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(n_clusters, (n_samples,), generator=generator)


def one_hot(labels: Tensor, n_clusters: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, n_clusters).double()


def undirected_edges(graph: SimilarityGraph) -> tuple[Tensor, Tensor, Tensor]:
    """(source, target, weight) of every edge once."""
    matrix = graph.to_scipy().tocoo()
    once = matrix.row < matrix.col
    row, col, data = matrix.row[once], matrix.col[once], matrix.data[once]
    return torch.from_numpy(row).long(), torch.from_numpy(col).long(), torch.from_numpy(data)


def hard_cut(
    graph: SimilarityGraph, labels: Tensor, n_clusters: int, node_weight: Tensor
) -> Tensor:
    """½ cut / size per cluster, by loops over all pairs of rows."""
    dense = graph.weight.to_dense()
    per_cluster = torch.zeros(n_clusters, dtype=torch.float64)
    for cluster in range(n_clusters):
        inside = [i for i in range(len(labels)) if labels[i] == cluster]
        outside = [i for i in range(len(labels)) if labels[i] != cluster]
        size = sum(float(node_weight[i]) for i in inside)
        cut = sum(float(dense[i, j]) for i in inside for j in outside)
        per_cluster[cluster] = 0.5 * cut / size if cut else 0.0
    return per_cluster


def surrogate(graph: SimilarityGraph, probs: Tensor, node_weight: Tensor) -> Tensor:
    """The formula of the paper, eq. 8, with the definition's ½ and Σωp, by loops."""
    dense = graph.weight.to_dense()
    per_cluster = torch.zeros(probs.shape[1], dtype=torch.float64)
    for cluster in range(probs.shape[1]):
        p = probs[:, cluster].tolist()
        cut = sum(
            float(dense[i, j]) * (p[i] + p[j] - 2 * p[i] * p[j])
            for i in range(len(p))
            for j in range(i)
        )
        size = sum(float(w) * q for w, q in zip(node_weight, p, strict=True))
        per_cluster[cluster] = 0.5 * cut / size if cut else 0.0
    return per_cluster


def assignments(probs: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Every labelling and its probability."""
    for labels in itertools.product(range(probs.shape[1]), repeat=len(probs)):
        yield (
            torch.tensor(labels),
            math.prod(float(probs[i, label]) for i, label in enumerate(labels)),
        )


def expectation(graph: SimilarityGraph, probs: Tensor) -> Tensor:
    """Expected ratio cut per cluster: the mean over all n_clusters ** n_samples labellings."""
    ones = torch.ones(len(probs))
    per_cluster = torch.zeros(probs.shape[1], dtype=torch.float64)
    for labels, probability in assignments(probs):
        per_cluster += probability * hard_cut(graph, labels, probs.shape[1], ones)
    return per_cluster


def pair_integral(probs: Tensor, i: int, j: int) -> float:
    """E[1 / (1 + |C without i and j|)] of one cluster, from the distribution of the size."""
    pmf = np.ones(1)
    for m, p in enumerate(probs.tolist()):
        if m not in (i, j):
            pmf = np.convolve(pmf, [1 - p, p])
    return float((pmf / (1 + np.arange(len(pmf)))).sum())


def upper_bound(graph: SimilarityGraph, probs: Tensor) -> Tensor:
    """The surrogate times n p̄ ∫(1−αt)ᵐdt by quadrature, α from the two largest probabilities."""
    n_samples = len(probs)
    node, weight = np.polynomial.legendre.leggauss(64)
    node, weight = (node + 1) / 2, weight / 2
    factors = []
    for p in probs.T.tolist():
        alpha = sum(sorted(p)[:-2]) / max(n_samples - 2, 1)
        integral = float((weight * (1 - alpha * node) ** (n_samples - 2)).sum())
        factors.append(sum(p) * integral)
    ones = torch.ones(n_samples)
    return surrogate(graph, probs, ones) * torch.tensor(factors, dtype=torch.float64)


def partition_objective(
    links: np.ndarray,
    sizes: np.ndarray,
    labels: np.ndarray,
    n_clusters: int,
    total: float,
    balance_weight: float,
) -> float:
    """The objective of a partition of nodes of these sizes, by its formula; empty clusters add 0.

    ``total`` is the weight of the whole graph, of which links between nodes may be a part only.
    """
    n_samples = float(sizes.sum())
    cut = imbalance = 0.0
    for cluster in range(n_clusters):
        inside = labels == cluster
        share = float(sizes[inside].sum()) / n_samples
        if share > 0:
            leaving = float(links[np.ix_(inside, ~inside)].sum())
            cut += leaving / (share * total) if total > 0 else 0.0
            imbalance += share * math.log(share * n_clusters)
    if n_clusters == 1:
        return cut
    return cut + balance_weight / math.log(n_clusters / (n_clusters - 1)) * imbalance


def full_labels(n_nodes: int, n_clusters: int, seed: int = 0) -> np.ndarray:
    """Random labels, each at least once where there are nodes enough."""
    rng = np.random.default_rng(seed)
    extra = rng.integers(n_clusters, size=max(0, n_nodes - n_clusters))
    labels: np.ndarray = rng.permutation(np.append(np.arange(n_clusters), extra)[:n_nodes])
    return labels
