"""Names of clusters: from planted words, with exemplars, and nothing of a hostile text."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prcut.curate.names import NAMES, clean_text, name_clusters, read_names, write_names
from prcut.errors import CorruptFileError, DataWarning, InvalidInputError
from prcut.runtime.folder import Folder
from prcut.search.merge import MergeTree

TOPICS = ["bank loan", "bank card", "garden soil", "garden seed"]
TEXTS = [f"{topic} {'abcdefghij'[i]}x" for topic in TOPICS for i in range(10)]
LABELS = np.repeat(np.arange(4), 10)
TREE = MergeTree(np.array([[0, 1], [2, 3], [4, 5]]), np.zeros(3))


def test_clusters_and_layers_are_named_by_their_words() -> None:
    names = name_clusters(TEXTS, LABELS, tree=TREE, layer_sizes=[4, 2])
    assert [one.name.split(",")[0].split()[-1] for one in names.clusters] == [
        *("loan", "card", "soil", "seed")
    ]
    assert [layer.name.split(",")[0].split()[0] for layer in names.layers[2]] == ["bank", "garden"]
    assert [one.size for one in names.clusters] == [10] * 4
    assert [one.size for one in names.layers[2]] == [20, 20]
    for label, one in enumerate(names.clusters):
        assert len(one.exemplars) == 3
        assert all(LABELS[row] == label and TEXTS[row] == text for row, text in one.exemplars)


def test_names_have_no_auxiliaries_and_no_pieces_of_contractions() -> None:
    texts = ["I don’t see my card", "didn't it see the card", "We'll see", "It's John's card"] * 9
    texts += ["won't pay rent", "Hasn't he paid the rent?", "could they pay", "the rent does"] * 9
    names = name_clusters(texts, np.repeat([0, 1], 36))
    words = {word for one in names.clusters for word in " ".join(one.terms).split()}
    assert words == {"card", "john", "pay", "paid", "rent"}


@given(st.text(), st.integers(1, 50))
def test_clean_texts_are_short_lines_that_are_seen(text: str, most: int) -> None:
    clean = clean_text(text, most)
    assert len(clean) <= most
    assert "\n" not in clean
    for one in clean:
        assert one in "\u200c\u200d" or unicodedata.category(one)[0] != "C"
    assert clean_text(clean, most) == clean


def test_a_namer_words_the_names_and_is_not_trusted() -> None:
    asked: list[tuple[list[str], list[str]]] = []

    def namer(terms: list[str], exemplars: list[str]) -> str:
        asked.append((terms, exemplars))
        return "\x1b[31m<b>Name</b>\u202e\n" + "x" * 500

    names = name_clusters(TEXTS, LABELS, tree=TREE, layer_sizes=[2], namer=namer)
    assert len(asked) == 6
    named = [*names.clusters, *names.layers[2]]
    assert {tuple(one.terms) for one in named} == {tuple(terms) for terms, _ in asked}
    assert all(len(exemplars) == 3 for _, exemplars in asked)
    assert {len(one.name) for one in names.clusters} == {80}
    assert names.clusters[0].name.startswith("[31m<b>Name</b> xxx")


def test_a_namer_that_fails_leaves_the_key_terms() -> None:
    asked = []

    def namer(terms: list[str], exemplars: list[str]) -> str:
        asked.append(exemplars)
        raise OSError(f"no \x1b[31m answer {terms[0]}")

    with pytest.warns(DataWarning, match=r"OSError: no \[31m answer") as seen:
        names = name_clusters(TEXTS, LABELS, namer=namer)
    assert len(asked) == len(seen) == 4
    assert names == name_clusters(TEXTS, LABELS)
    for answer in (None, 3, "", " \x00\n"):
        with pytest.warns(DataWarning, match="the namer failed"):
            assert names == name_clusters(TEXTS, LABELS, namer=lambda *_, a=answer: a)


def test_names_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_names(tmp_path) is None
    names = name_clusters(TEXTS, LABELS, tree=TREE, layer_sizes=[4, 3, 2])
    write_names(Folder(tmp_path), names)
    assert read_names(tmp_path) == names
    assert read_names(str(tmp_path), n_clusters=4) == names
    with pytest.raises(CorruptFileError, match="names of 4 clusters, the model has 5"):
        read_names(tmp_path, n_clusters=5)


def test_forged_names_are_refused_or_cleaned(tmp_path: Path) -> None:
    write_names(Folder(tmp_path), name_clusters(TEXTS, LABELS, tree=TREE, layer_sizes=[2]))
    whole = json.loads((tmp_path / NAMES).read_text())
    for forged in (
        {**whole, "clusters": [{}]},
        {**whole, "layers": {"3": whole["layers"]["2"]}},
        {**whole, "clusters": [{**whole["clusters"][0], "size": -1}]},
    ):
        (tmp_path / NAMES).write_text(json.dumps(forged))
        with pytest.raises(CorruptFileError):
            read_names(tmp_path)
    (tmp_path / NAMES).write_text(json.dumps({**whole, "format": 99}))
    with pytest.raises(InvalidInputError, match="upgrade prcut"):
        read_names(tmp_path)
    whole["clusters"][0]["name"] = "\x1b[2J" + "y" * 10_000
    (tmp_path / NAMES).write_text(json.dumps(whole))
    names = read_names(tmp_path)
    assert names is not None
    assert names.clusters[0].name.startswith("[2Jyyy")
    assert len(names.clusters[0].name) == 80
