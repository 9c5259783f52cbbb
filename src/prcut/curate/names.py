"""Names of clusters from the texts of their rows."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import CorruptFileError, DataWarning, InvalidInputError
from prcut.runtime.folder import Folder, check_format, parsing, whole_number
from prcut.search.merge import MergeTree

NAMES = "names.json"
_FORMAT = 1
# terms in a name, and at most where less than half of a cluster's texts hold one of the first
_FEWEST_NAMED = 4
_MOST_NAMED = 6
# terms that are kept of a cluster
_MOST_KEPT = 10
# characters of a name: a line of a terminal
_NAME_LENGTH = 80
# characters of a term: two words of at most 40 letters, and more from other versions
_TERM_LENGTH = 130
# characters of an exemplar: about four lines of a report
_TEXT_LENGTH = 300
# texts whose terms are counted
_MOST_TEXTS = 200_000
# characters of a text that are read
_MOST_CHARACTERS = 10_000
# different terms that are counted
_MOST_TERMS = 50_000
# rows among which exemplars with different texts are chosen
_MOST_RANKED = 64
# a longer run of letters is no word of any language
_WORD = r"(?u)\b\w{2,40}\b"
# "don't", "won't" and their like are dropped; "we'll" is "we", and "today's" is "today"
_CONTRACTED = re.compile(r"\w+n['’]t\b|['’](?:s|m|d|re|ve|ll)\b", re.IGNORECASE)
# auxiliaries that scikit-learn's list lacks, also without their apostrophe
_MORE_ENGLISH = (
    "arent did didnt does doesnt doing dont gets getting got having havent im isnt ive need needed "
    "needs shall shouldnt want wanted wants wasnt wont wouldnt"
)
# in any language, words in more texts than this are stop words
_ANY_LIMIT = 0.2
# weight of a contrast, for every step further up the tree
_DECAY = 0.5
# marks without which some scripts cannot be written; all other invisible ones are left out
_JOINERS = "\u200c\u200d"

Namer = Callable[[list[str], list[str]], str]


class Exemplar(NamedTuple):
    """A row that shows what a cluster is about."""

    row: int
    text: str


class ClusterName(NamedTuple):
    """The name of a cluster, with its key terms, its exemplars and its number of rows."""

    name: str
    terms: list[str]
    exemplars: list[Exemplar]
    size: int


class Names(NamedTuple):
    """Names of the clusters, by label, and of coarser layers, by their number of clusters."""

    clusters: list[ClusterName]
    layers: dict[int, list[ClusterName]]

    def columns(self, layers: Mapping[int, np.ndarray]) -> dict[str, list[str]]:
        """List the names of every cluster: ``name``, and ``name_<number>`` of these layers."""
        listed = {"name": [one.name for one in self.clusters]}
        for size, merged in layers.items():
            if size in self.layers:
                listed[f"name_{size}"] = [self.layers[size][one].name for one in merged.tolist()]
        return listed


def name_clusters(
    texts: Sequence[str],
    labels: np.ndarray,
    *,
    tree: MergeTree | None = None,
    layer_sizes: Sequence[int] = (),
    n_clusters: int | None = None,
    language: str = "english",
    n_words: int = 2,
    n_exemplars: int = 3,
    namer: Namer | None = None,
) -> Names:
    """Name clusters, and the layers that they merge to, by the key terms of their texts.

    Key terms are in more texts of the cluster than of its sibling in the tree. Exemplars are the
    texts with the most key terms.

    Parameters
    ----------
    texts : sequence of str
        One for each row.
    labels : int array, shape (n_samples,)
        The cluster of every row; rows of −1 are left out.
    tree : MergeTree, optional
        ``merge_tree_`` of an estimator. Without it, clusters are contrasted with all others.
    layer_sizes : sequence of int
        Numbers of clusters to which the tree merges, such as ``layer_sizes_`` of an estimator.
    n_clusters : int, optional
        By default one more than the largest label, or as many as the tree merges.
    language : str
        Language of the stop words: ``"english"``; ``"any"``, which leaves out words of more than a
        fifth of the texts; or a .txt file with a word per line.
    n_words : int
        Words of the longest terms.
    n_exemplars : int
    namer : callable, optional
        Called with the key terms and the exemplars of a cluster; returns its name. The name is
        cut to 80 characters, without control characters. If the namer fails, the key terms remain.

    Examples
    --------
    >>> texts = ["lost my card", "card was lost", "exchange rate today", "today's exchange rate"]
    >>> names = name_clusters(texts, np.array([0, 0, 1, 1]))
    >>> [cluster.name for cluster in names.clusters]
    ['card lost', 'exchange rate, rate today, today exchange']
    """
    labels = np.asarray(labels, np.int64).reshape(-1)
    if len(texts) != len(labels):
        raise InvalidInputError(f"{len(texts)} texts for {len(labels)} labels; pass one per row.")
    if n_clusters is None:
        n_clusters = int(labels.max(initial=-1)) + 1 if tree is None else len(tree.children) + 1
    if labels.max(initial=-1) >= n_clusters:
        raise InvalidInputError(f"labels up to {labels.max()} are not of {n_clusters=}.")
    if not n_clusters:
        return Names([], {})
    # nodes below n_clusters are clusters; node n_clusters + i has the clusters of children[i]
    children = [[*range(n_clusters)]] if tree is None else tree.children.tolist()
    layers = {n_clusters: [*range(n_clusters)]}
    for size in layer_sizes:
        if size != n_clusters and (tree is None or not 1 <= size < n_clusters):
            raise InvalidInputError(
                f"layer_sizes={[*layer_sizes]} need a tree, and sizes from 1 to {n_clusters=}."
            )
        merged = {child for pair in children[: n_clusters - size] for child in pair}
        layers[size] = [node for node in range(2 * n_clusters - size) if node not in merged]

    rows = np.flatnonzero(labels >= 0)
    if len(rows) > _MOST_TEXTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MOST_TEXTS, replace=False))
    terms, held = find_terms([str(texts[row]) for row in rows.tolist()], language, n_words)
    clusters = labels[rows]
    counted = np.bincount(clusters, minlength=n_clusters)
    ones = np.ones(len(rows), np.float32)
    of_cluster = csr_array((ones, (clusters, np.arange(len(rows)))), (n_clusters, len(rows)))
    length = np.sqrt(np.maximum(np.diff(held.indptr), 1))
    sizes = np.bincount(labels[labels >= 0], minlength=n_clusters)

    named: dict[int, ClusterName] = {}
    wanted = {node for nodes in layers.values() for node in nodes}
    for node, members, scores in score_terms(children, csr_array(of_cluster @ held), counted):
        if node not in wanted:
            continue
        best = choose_terms(terms, scores)
        key_terms = [terms[term] for term in best]
        inside = np.sort(of_cluster[members].indices)
        fit = held[inside] @ np.maximum(scores, 0) / length[inside]
        ranked = rows[inside[np.argsort(-fit, kind="stable")[:_MOST_RANKED]]].tolist()
        exemplars = _choose_exemplars(texts, ranked, n_exemplars)
        # a term more for every one after the fourth that leaves half of the texts without a term
        covered = held[inside][:, best[: _MOST_NAMED - 1]].toarray().cumsum(1) > 0
        n_named = _FEWEST_NAMED + int((covered.mean(0)[_FEWEST_NAMED - 1 :] < 0.5).sum())
        name = _choose_name(namer, key_terms, exemplars, n_named)
        named[node] = ClusterName(name, key_terms, exemplars, int(sizes[members].sum()))
    found = {
        size: [_number(named[node], i) for i, node in enumerate(nodes)]
        for size, nodes in layers.items()
    }
    return Names(found.pop(n_clusters), found)


def _number(cluster: ClusterName, number: int) -> ClusterName:
    """Call a cluster without a name by its number."""
    return cluster if cluster.name else cluster._replace(name=f"cluster {number}")


def find_terms(
    texts: Sequence[str], language: str, n_words: int = 2
) -> tuple[list[str], csr_array]:
    """Find the terms in the texts: words, and words in a row without the stop words.

    Return the terms, and a float32 array, shape (n_texts, n_terms), with 1 where a text holds one.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    cut = [text[:_MOST_CHARACTERS] for text in texts]
    if language == "english":
        cut = [_CONTRACTED.sub(" ", text) for text in cut]
    is_small = len(texts) <= 20
    vectorizer = CountVectorizer(
        ngram_range=(1, n_words),
        stop_words=None if is_small and language == "any" else read_stop_words(language, cut),
        token_pattern=_WORD,
        binary=True,
        dtype=np.float32,
        max_features=_MOST_TERMS,
        # a term of one text says nothing about its cluster
        min_df=1 if is_small else 2,
    )
    try:
        held = csr_array(vectorizer.fit_transform(cut))
    except ValueError:  # the texts are empty, or hold only stop words
        return [], csr_array((len(texts), 0), dtype=np.float32)
    return vectorizer.get_feature_names_out().tolist(), held


def read_stop_words(language: str, texts: Sequence[str] = ()) -> list[str]:
    """Return the stop words of a language; see :func:`name_clusters`."""
    if language == "any":
        held = Counter(word for text in texts for word in set(re.findall(_WORD, text.lower())))
        return [word for word, n_texts in held.items() if n_texts > _ANY_LIMIT * len(texts)]
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return sorted(ENGLISH_STOP_WORDS.union(_MORE_ENGLISH.split()))
    if not language.endswith(".txt"):
        raise InvalidInputError(
            f"{language=} must be 'english', 'any', or a .txt file with a stop word per line."
        )
    try:
        return Path(language).read_text("utf-8").lower().split()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{language} cannot be read as stop words: {error}") from error


def score_terms(
    children: Sequence[Sequence[int]], counts: csr_array, sizes: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield every node of a tree, with its clusters and the score of every term in it.

    A term's score is the fraction of the node's texts that hold it, times a contrast: log p/q for
    the node and its siblings, plus half of the parent's contrast, a quarter of the grandparent's,
    and so on. Without the parents, two clusters of card payments would be named "declined" and
    "pending"; with a contrast to all other clusters, both would be named "card payment".
    """
    members = [np.array([cluster]) for cluster in range(len(sizes))]
    for nodes in children:
        members.append(np.concatenate([members[node] for node in nodes]))
    stack: list[Any] = [(len(members) - 1, None, np.zeros(counts.shape[1]))]
    while stack:
        node, parent, above = stack.pop()
        inside = members[node]
        held, size = np.asarray(counts[inside].sum(0), np.float64).ravel(), sizes[inside].sum()
        contrast = above
        weight = np.ones(len(held))  # the root: its most frequent terms are the best
        if parent is not None:
            rest, rest_size = parent[0] - held, parent[1] - size
            odds = (held + 0.5) / (size + 1) * (rest_size + 1) / (rest + 0.5)
            contrast = weight = np.log(odds) + _DECAY * above
        yield node, inside, held / max(size, 1) * weight
        # the smallest node is next: few sums wait in the stack
        below = children[node - len(sizes)] if node >= len(sizes) else ()
        below = sorted(below, key=lambda child: -len(members[child]))
        stack += [(child, (held, size), contrast) for child in below]


def choose_terms(terms: Sequence[str], scores: np.ndarray) -> list[int]:
    """Choose the positions of the ten best terms; none repeats the words of another.

    A plural in s counts as its singular.

    >>> choose_terms(["card", "lost card", "pin"], np.array([3.0, 2.0, 1.0]))
    [1, 2]
    """
    chosen: dict[int, set[str]] = {}
    for place in np.argsort(-scores, kind="stable")[: 20 * _MOST_KEPT].tolist():
        words = {word.removesuffix("s") for word in terms[place].split()}
        if scores[place] <= 0:
            break
        if within := [one for one, other in chosen.items() if other < words]:
            # the longer term takes the place of the words in it
            kept = {one: other for one, other in chosen.items() if one not in within[1:]}
            chosen = {place if one == within[0] else one: other for one, other in kept.items()}
            chosen[place] = words
        elif len(chosen) < _MOST_KEPT and not any(words <= other for other in chosen.values()):
            chosen[place] = words
    return [*chosen]


def _choose_exemplars(texts: Sequence[str], rows: Sequence[int], n_rows: int) -> list[Exemplar]:
    """Choose the first rows whose texts differ and are not empty."""
    chosen: dict[str, int] = {}
    for row in rows:
        text = clean_text(str(texts[row]), _TEXT_LENGTH)
        if text and len(chosen) < n_rows:
            chosen.setdefault(text, row)
    return [Exemplar(row, text) for text, row in chosen.items()]


def _choose_name(
    namer: Namer | None, terms: list[str], exemplars: list[Exemplar], n_named: int
) -> str:
    """Return the namer's answer, or the first key terms if there is none or it fails."""
    if namer is not None and (terms or exemplars):
        try:
            answer = namer([*terms], [one.text for one in exemplars])
            if not isinstance(answer, str) or not clean_text(answer, _NAME_LENGTH):
                raise TypeError(f"the name is {repr(answer)[:40]}")
            return clean_text(answer, _NAME_LENGTH)
        except Exception as error:  # of a language model behind it; other names are not lost
            reason = clean_text(f"{type(error).__name__}: {error}", 200)
            message = f"the namer failed ({reason}): the key terms are the name."
            warnings.warn(message, DataWarning, stacklevel=3)
    while n_named > _FEWEST_NAMED and len(", ".join(terms[:n_named])) > _NAME_LENGTH:
        n_named -= 1  # rather than cut a term
    return clean_text(", ".join(terms[:n_named]), _NAME_LENGTH)


def clean_text(text: str, most: int) -> str:
    r"""Return a stranger's text as one line of at most ``most`` characters.

    Control characters, marks of direction and other invisible characters become spaces.

    >>> clean_text("\x1b[31mred\u202e  and  more", 12)
    '[31mred and…'
    """
    seen = "".join(one if one.isprintable() or one in _JOINERS else " " for one in text[: 9 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


# -- the file of a run -----------------------------------------------------------------------------


def write_names(folder: Folder, names: Names) -> None:
    """Write ``names.json``, replacing one that is there."""

    def describe(cluster: ClusterName) -> dict[str, Any]:
        return {**cluster._asdict(), "exemplars": [one._asdict() for one in cluster.exemplars]}

    content = {
        "format": _FORMAT,
        "clusters": [describe(cluster) for cluster in names.clusters],
        "layers": {str(size): [*map(describe, layer)] for size, layer in names.layers.items()},
    }
    folder.write_json(NAMES, content)


def read_names(path: str | Path | Folder, n_clusters: int | None = None) -> Names | None:
    """Read the names in a run folder, which a stranger may have written; None where it has none."""
    folder = path if isinstance(path, Folder) else Folder(path)
    if not folder.exists(NAMES):
        return None
    with parsing(f"{folder.path}/{NAMES}"):
        content = folder.read_json(NAMES)
        check_format(f"{folder.path}/{NAMES}", whole_number(content["format"]), _FORMAT)
        clusters = [_parse(one) for one in content["clusters"]]
        layers = {int(size): [*map(_parse, layer)] for size, layer in content["layers"].items()}
        if any(len(layer) != size for size, layer in layers.items()):
            raise ValueError("a layer has not as many names as clusters")
    if n_clusters is not None and len(clusters) != n_clusters:
        raise CorruptFileError(
            f"{folder.path}/{NAMES} has names of {len(clusters)} clusters, the model has "
            f"{n_clusters}; run `prcut name` again."
        )
    return Names(clusters, dict(sorted(layers.items(), reverse=True)))


def _parse(content: Any) -> ClusterName:
    exemplars = [
        Exemplar(whole_number(one["row"]), clean_text(one["text"], _TEXT_LENGTH))
        for one in content["exemplars"]
    ]
    terms = [clean_text(term, _TERM_LENGTH) for term in content["terms"]]
    name, size = clean_text(content["name"], _NAME_LENGTH), whole_number(content["size"])
    return ClusterName(name, terms, exemplars, size)
