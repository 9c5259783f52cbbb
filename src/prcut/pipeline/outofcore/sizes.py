"""How many rows fit in memory, and how many a block or a search gets."""

from __future__ import annotations

# measured: neighbours, weights, both directions and the copies made while they are joined
_BYTES_PER_LINK = 100
# a smaller block finds too few of the true neighbours; a larger one gains nothing
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 1_000, 100_000
# of few blocks each sees much of the data in its halo, and compares its rows with all of that
_MANY_BLOCKS, _ENOUGH_BLOCK_ROWS = 64, 10_000
# rows of the largest block with its halo, relative to the mean
LARGEST_BLOCK = 1.5
# nodes of the graph that one process searches: wanted, for each cluster, and fewest whatever the
# memory; bytes of a node with its edges while it is searched
_NODES, _NODES_PER_CLUSTER, _MIN_NODES, _NODE_BYTES = 2**16, 32, 2**14, 5_000


def bytes_in_memory(n_samples: int, n_features: int, itemsize: int, n_neighbors: int) -> int:
    """Bound the bytes of features, neighbours and graph while the graph is built.

    The features are held twice: as they came, and as the search's copy in float32.

    >>> bytes_in_memory(1_000_000, 128, 4, 15) / 1e9
    2.524
    """
    row = n_features * (itemsize + 4) + n_neighbors * _BYTES_PER_LINK
    return n_samples * row


def most_block_rows(n_samples: int) -> int:
    """Return the rows that a block has where there is memory enough.

    >>> [most_block_rows(n_samples) for n_samples in (10**5, 10**6, 10**9)]
    [10000, 15625, 100000]
    """
    return min(_MAX_BLOCK_ROWS, max(_ENOUGH_BLOCK_ROWS, n_samples // _MANY_BLOCKS))


def choose_block_rows(
    memory: int, n_samples: int, n_features: int, itemsize: int, n_neighbors: int, *, halo: int
) -> int:
    """Choose the rows of a block: the largest one with its halo takes at most ``memory`` bytes.

    >>> choose_block_rows(8 * 10**9, 10**8, 128, 4, 15, halo=4)
    100000
    >>> choose_block_rows(10**9, 10**8, 128, 4, 15, halo=4)
    81859
    """
    # rows with their halo are read, joined and searched; core rows may be twice the mean
    rows = max(2.0, LARGEST_BLOCK * halo) * n_features * (2 * itemsize + 4)
    row = int(rows + 2 * n_neighbors * _BYTES_PER_LINK)
    least = max(_MIN_BLOCK_ROWS, 10 * n_neighbors)
    return max(least, min(most_block_rows(n_samples), memory // row))


def choose_most_nodes(memory: int, n_samples: int, n_clusters: int) -> int:
    """Choose the nodes that the coarsest graph may have: its search takes ``memory`` bytes."""
    wanted = max(_NODES, _NODES_PER_CLUSTER * n_clusters)
    return min(n_samples, max(_MIN_NODES, n_clusters, min(wanted, memory // _NODE_BYTES)))


def anchor_fraction(n_samples: int) -> float:
    """Return the fraction of the rows that look for neighbours: a million, or a tenth if more."""
    return min(1.0, max(0.1, 1e6 / n_samples))
