"""Sizes: what a graph takes of the memory, and the rows that blocks and searches get."""

from prcut.graph.blocks.build import (
    anchor_fraction,
    bytes_in_memory,
    choose_block_rows,
)


def test_blocks_keep_within_limits() -> None:
    assert choose_block_rows(1, 10**9, 128, 4, 15, halo=4) == 1000
    assert choose_block_rows(1, 10**9, 128, 4, 200, halo=4) == 2000
    assert choose_block_rows(10**15, 10**9, 128, 4, 15, halo=4) == 100_000
    # many blocks whatever the memory: of few, each is compared with much of the data
    assert choose_block_rows(10**15, 10**6, 128, 4, 15, halo=4) == 15_625
    assert choose_block_rows(10**15, 100, 128, 4, 15, halo=4) == 10_000


def test_the_features_are_held_as_they_came_and_in_float32() -> None:
    half, single = (bytes_in_memory(1000, 128, itemsize, 15) for itemsize in (2, 4))
    assert single - half == 1000 * 128 * 2


def test_a_million_rows_or_a_tenth_look_for_neighbours() -> None:
    assert anchor_fraction(1) == anchor_fraction(10**6) == 1
    assert anchor_fraction(2 * 10**6) == 0.5
    assert anchor_fraction(10**8) == 0.1
