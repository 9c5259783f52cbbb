"""A graph of fragments: few enough nodes for a dense matrix, so that whole partitions are cheap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

__all__ = ["CoarseGraph", "contract", "overlay"]


class CoarseGraph(NamedTuple):
    """Fragments and the weights between them.

    Attributes
    ----------
    links : float64 array, shape (n_fragments, n_fragments)
        Symmetric, with an empty diagonal: what lies within a fragment is never cut.
    sizes : float64 array, shape (n_fragments,)
        Rows of each.
    """

    links: np.ndarray
    sizes: np.ndarray


def contract(weight: csr_array, fragments: np.ndarray) -> CoarseGraph:
    """The graph between fragments, numbered from 0 without gaps.

    >>> path = csr_array(np.eye(4, k=1) + np.eye(4, k=-1))
    >>> contract(path, np.array([0, 0, 1, 1])).links.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n_samples, n_fragments = len(fragments), int(fragments.max()) + 1
    member = csr_array(
        (np.ones(n_samples), fragments, np.arange(n_samples + 1)), shape=(n_samples, n_fragments)
    )
    links = (member.T @ (weight @ member)).toarray().astype(np.float64)
    np.fill_diagonal(links, 0.0)
    return CoarseGraph(links, np.bincount(fragments, minlength=n_fragments).astype(np.float64))


def overlay(*partitions: np.ndarray) -> np.ndarray:
    """The coarsest fragments that every one of the partitions is made of, numbered from 0.

    >>> overlay(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])).tolist()
    [0, 1, 2, 2]
    """
    joined = np.zeros(len(partitions[0]), dtype=np.int64)
    for labels in partitions:
        joined = joined * (int(labels.max()) + 1) + labels
        joined = np.unique(joined, return_inverse=True)[1].reshape(-1)
    return joined
