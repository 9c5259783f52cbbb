"""Hierarchical assigners: one chooses a cluster, another splits that cluster."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError
from prcut.training.assigner.network import Assigner


class LevelAssigner(nn.Module):
    """Tree of assigners, walked from the root: n·(k₁ + k₂) logits instead of n·k₁·k₂.

    There is one child for every cluster of the root, None for a cluster that is not split. The
    clusters are the leaves; those of the first child come first.

    >>> tree = LevelAssigner(Assigner(3, 2), [Assigner(3, 4), None])
    >>> tree.n_clusters, tree.first_leaf.tolist()
    (5, [0, 4])
    """

    first_leaf: Tensor
    n_features: int
    n_clusters: int

    def __init__(self, root: Assigner, children: Sequence[Assigner | LevelAssigner | None]) -> None:
        super().__init__()
        if len(children) != root.n_clusters:
            raise InvalidInputError(
                f"{len(children)} children were given, expected one for each of the "
                f"n_clusters={root.n_clusters} of the root."
            )
        for child in children:
            if child is not None and child.n_features != root.n_features:
                raise InvalidInputError(
                    f"a child has n_features={child.n_features}, expected "
                    f"{root.n_features} as in the root."
                )
        self.root = root
        self.children_of = nn.ModuleList(
            nn.Identity() if child is None else child for child in children
        )
        leaves = [1 if child is None else child.n_clusters for child in children]
        self.n_features, self.n_clusters = root.n_features, sum(leaves)
        self.register_buffer("first_leaf", torch.tensor([0, *leaves[:-1]]).cumsum(0))

    @property
    def width(self) -> int:
        """Number of activations of a row in the widest layer of the root."""
        return self.root.width

    @property
    def children_or_none(self) -> list[Assigner | LevelAssigner | None]:
        """Child of every cluster of the root; None where the cluster is not split."""
        return [
            child if isinstance(child, Assigner | LevelAssigner) else None
            for child in self.children_of
        ]

    def walk(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return every row's leaf and the product of its probabilities, shape (n_samples,) each."""
        probs, cluster = self.root.probs(features).max(1)
        leaf, confidence = self.first_leaf[cluster], probs
        for number in cluster.unique().tolist():
            child = self.children_of[number]
            if isinstance(child, nn.Identity):
                continue
            rows = (cluster == number).nonzero()[:, 0]
            if isinstance(child, LevelAssigner):
                inside, certainty = child.walk(features[rows])
            else:
                assert isinstance(child, Assigner)  # noqa: S101
                certainty, inside = child.probs(features[rows]).max(1)
            leaf[rows] += inside
            confidence[rows] *= certainty
        return leaf, confidence
