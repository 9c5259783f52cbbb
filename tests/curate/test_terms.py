"""Key terms: contrasted with the sibling, none said twice, stop words by language."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from prcut.curate.names import choose_terms, find_terms, read_stop_words, score_terms
from prcut.errors import InvalidInputError


def _best(texts: list[str], labels: list[int], children: list[list[int]]) -> dict[int, list[str]]:
    terms, held = find_terms(texts, "english", 1)
    sizes = np.bincount(labels)
    of_cluster = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
    scores = score_terms(children, csr_array(of_cluster @ held), sizes)
    return {node: [terms[term] for term in choose_terms(terms, score)] for node, _, score in scores}


def test_a_cluster_is_told_from_its_sibling_and_its_parent_from_the_others() -> None:
    texts = ["card lost"] * 9 + ["card delivery"] * 9 + ["exchange rates"] * 9
    labels = [0] * 9 + [1] * 9 + [2] * 9
    best = _best(texts, labels, [[0, 1], [2, 3]])
    assert best[0] == ["lost", "card"]  # the word of both comes after its own
    assert best[1] == ["delivery", "card"]
    assert best[3][0] == "card"  # which tells the pair from the third
    assert _best(texts, labels, [[0, 1, 2]])[0] == ["lost", "card"]


def test_a_deep_tree_needs_no_recursion() -> None:
    n_clusters = 1500  # more than Python's limit of calls
    children = [[0, 1], *([number, n_clusters + number - 2] for number in range(2, n_clusters))]
    texts = [f"w{number:05d}" for number in range(n_clusters) for _ in range(2)]
    best = _best(texts, np.repeat(np.arange(n_clusters), 2).tolist(), children)
    assert all(best[cluster] == [f"w{cluster:05d}"] for cluster in range(n_clusters))


WORDS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3).map(" ".join)


@given(st.lists(WORDS, unique=True, max_size=12))
def test_no_term_repeats_the_words_of_another(names: list[str]) -> None:
    scores = np.arange(len(names), 0, -1).astype(float)
    chosen = [names[place] for place in choose_terms(names, scores)]
    assert len(chosen) <= 10
    assert len(chosen) > 0 or not names
    for place, term in enumerate(chosen):
        for other in chosen[:place] + chosen[place + 1 :]:
            assert not set(term.split()) <= set(other.split())


def test_stop_words_by_language(tmp_path: Path) -> None:
    texts = [f"der {word} und der {word}" for word in ("hund", "katze", "maus", "vogel") * 6]
    assert {"der", "und", "hund"} <= set(find_terms(texts, "english", 1)[0])
    assert set(find_terms(texts, "any", 1)[0]) == set()  # each word in a quarter of them
    more = texts + [f"der {word}" for word in ("baum", "blume", "gras", "moos") * 6]
    assert not {"der", "und"} & set(find_terms(more, "any", 1)[0])
    assert {"hund", "baum"} <= set(find_terms(more, "any", 1)[0])
    (tmp_path / "stop.txt").write_text("der\nund\n", "utf-8")
    named = find_terms(texts, str(tmp_path / "stop.txt"), 2)[0]
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
