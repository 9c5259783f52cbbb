"""Key terms: contrasted with the sibling, none said twice, stop words by language."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prcut.curate.names import (
    ClusterTree,
    TextTerms,
    choose_terms,
    read_stop_words,
    score_terms,
)
from prcut.errors import InvalidInputError
from prcut.search.merge import MergeTree


def _random_tree(n_clusters: int, seed: int) -> MergeTree:
    """Merge two nodes drawn at random, until one is left."""
    rng, alive, pairs = np.random.default_rng(seed), [*range(n_clusters)], []
    for number in range(n_clusters - 1):
        pair = sorted(rng.choice(len(alive), 2, replace=False), reverse=True)
        pairs.append(sorted(alive.pop(place) for place in pair))
        alive.append(n_clusters + number)
    return MergeTree(np.array(pairs, np.int64).reshape(-1, 2), np.zeros(n_clusters - 1))


def _best(texts: list[str], labels: list[int], tree: ClusterTree) -> dict[int, list[str]]:
    found = TextTerms.find(texts, "english", 1)
    counts = found.of_clusters(np.array(labels), tree.n_clusters)
    sizes = np.bincount(labels, minlength=tree.n_clusters).astype(float)
    wanted = {*range(tree.n_clusters), *tree.children}
    scores = score_terms(tree, counts, sizes, wanted)
    return {node: choose_terms(found.names, score) for node, score in scores}


def test_a_cluster_is_told_from_its_sibling_and_its_parent_from_the_others() -> None:
    texts = ["card lost"] * 9 + ["card delivery"] * 9 + ["exchange rates"] * 9
    tree = ClusterTree.of(3, MergeTree(np.array([[0, 1], [2, 3]]), np.zeros(2)))
    best = _best(texts, [0] * 9 + [1] * 9 + [2] * 9, tree)
    assert best[0] == ["lost", "card"]  # the word of both comes after its own
    assert best[1] == ["delivery", "card"]
    assert best[3][0] == "card"  # which tells the pair from the third
    flat = _best(texts, [0] * 9 + [1] * 9 + [2] * 9, ClusterTree.of(3, None))
    assert flat[0] == ["lost", "card"]


@given(st.integers(1, 40), st.integers(0, 1000), st.data())
def test_layers_are_those_of_the_merge_tree(
    n_clusters: int, seed: int, data: st.DataObject
) -> None:
    merges = _random_tree(n_clusters, seed)
    size = data.draw(st.integers(1, n_clusters))
    tree, labels = ClusterTree.of(n_clusters, merges), merges.labels(size)
    for number, node in enumerate(tree.layer(size)):
        below = [node]
        while inner := [one for one in below if one in tree.children]:
            below = [one for one in below if one not in inner]
            below += [child for one in inner for child in tree.children[one]]
        assert sorted(below) == np.flatnonzero(labels == number).tolist()


def test_a_deep_tree_needs_no_recursion() -> None:
    n_clusters = 1500  # more than Python's limit of calls
    pairs = [[0, 1], *([number, n_clusters + number - 2] for number in range(2, n_clusters))]
    tree = ClusterTree.of(n_clusters, MergeTree(np.array(pairs), np.zeros(n_clusters - 1)))
    texts = [f"w{number:05d}" for number in range(n_clusters) for _ in range(2)]
    best = _best(texts, np.repeat(np.arange(n_clusters), 2).tolist(), tree)
    assert all(best[cluster] == [f"w{cluster:05d}"] for cluster in range(n_clusters))


@pytest.mark.parametrize("pairs", [[[0, 0], [3, 3]], [[0, 1], [1, 3]], [[3, 4], [0, 1]], [[0, 1]]])
def test_a_forged_tree_is_refused(pairs: list[list[int]]) -> None:
    with pytest.raises(InvalidInputError, match="does not merge 3 clusters"):
        ClusterTree.of(3, MergeTree(np.array(pairs), np.zeros(len(pairs))))


WORDS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3).map(" ".join)


@given(st.lists(WORDS, unique=True, max_size=12), st.integers(1, 6))
def test_no_term_repeats_the_words_of_another(names: list[str], n_terms: int) -> None:
    scores = np.arange(len(names), 0, -1).astype(float)
    chosen = choose_terms(np.array(names, object), scores, n_terms)
    assert len(chosen) <= n_terms
    assert len(chosen) > 0 or not names
    for place, term in enumerate(chosen):
        for other in chosen[:place] + chosen[place + 1 :]:
            assert not set(term.split()) <= set(other.split())


def test_stop_words_by_language(tmp_path: Path) -> None:
    texts = [f"der {word} und der {word}" for word in ("hund", "katze", "maus", "vogel") * 6]
    assert {"der", "und", "hund"} <= set(TextTerms.find(texts, "english", 1).names)
    assert set(TextTerms.find(texts, "any", 1).names) == set()  # each word in a quarter of them
    more = texts + [f"der {word}" for word in ("baum", "blume", "gras", "moos") * 6]
    assert not {"der", "und"} & set(TextTerms.find(more, "any", 1).names)
    assert {"hund", "baum"} <= set(TextTerms.find(more, "any", 1).names)
    (tmp_path / "stop.txt").write_text("der\nund\n", "utf-8")
    named = TextTerms.find(texts, str(tmp_path / "stop.txt"), 2).names
    assert set(named) == {
        "hund",
        "katze",
        "maus",
        "vogel",
        *(f"{w} {w}" for w in named if " " not in w),
    }
    with pytest.raises(InvalidInputError, match="'german' must be 'english', 'any'"):
        read_stop_words("german")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_stop_words(str(tmp_path / "absent.txt"))
