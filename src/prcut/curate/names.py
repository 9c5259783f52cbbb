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
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runtime.folder import Folder, check_format, parsing, whole_number
from prcut.search.merge import MergeTree

# characters of a text that are read, and different terms that are counted
_MOST_CHARACTERS, _MOST_TERMS = 10_000, 50_000
# a longer run of letters is no word of any language
_WORD = r"(?u)\b\w{2,40}\b"
# missing in scikit-learn's list, with what its pattern leaves of "don't" and "I've"
_MORE_ENGLISH = {"did", "didn", "does", "doesn", "doing", "don", "isn", "ll", "ve", "wasn"}
# in any language, words in more texts than this are stop words
_ANY_LIMIT = 0.2
# what a contrast counts for, a step further up the tree
_DECAY = 0.5
_KEPT = 10


class TextTerms(NamedTuple):
    """Which texts hold which terms: words, and words in a row without the stop words."""

    names: np.ndarray  # of objects, shape (n_terms,)
    held: csr_array  # 1 where a text holds a term, float32, shape (n_texts, n_terms)

    @classmethod
    def find(cls, texts: Sequence[str], language: str, n_words: int = 2) -> TextTerms:
        """Find the terms of at most ``n_words`` words in the texts; see :func:`read_stop_words`."""
        from sklearn.feature_extraction.text import CountVectorizer

        cut = [text[:_MOST_CHARACTERS] for text in texts]
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
            return cls(np.empty(0, object), csr_array((len(texts), 0), dtype=np.float32))
        return cls(vectorizer.get_feature_names_out(), held)

    def of_clusters(self, labels: np.ndarray, n_clusters: int) -> csr_array:
        """Count the texts of every cluster that hold each term, shape (n_clusters, n_terms)."""
        known = np.flatnonzero(labels >= 0)
        ones = np.ones(len(known), np.float32)
        shape = n_clusters, len(labels)
        return csr_array(csr_array((ones, (labels[known], known)), shape=shape) @ self.held)


def read_stop_words(language: str, texts: Sequence[str] = ()) -> list[str]:
    """Return words that are no key terms.

    ``language`` is ``"english"``, for scikit-learn's list; the path of a .txt file with a word per
    line; or ``"any"``, which has no list: words in more than a fifth of the texts are left out.
    """
    if language == "any":
        held = Counter(word for text in texts for word in set(re.findall(_WORD, text.lower())))
        return [word for word, n_texts in held.items() if n_texts > _ANY_LIMIT * len(texts)]
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return sorted(ENGLISH_STOP_WORDS | _MORE_ENGLISH)
    if not language.endswith(".txt"):
        raise InvalidInputError(
            f"{language=} must be 'english', 'any', or a .txt file with a stop word per line."
        )
    try:
        return Path(language).read_text("utf-8").lower().split()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{language} cannot be read as stop words: {error}") from error


class ClusterTree(NamedTuple):
    """Clusters and what they merge to: nodes below ``n_clusters`` are clusters."""

    n_clusters: int
    # the nodes that every other node consists of; the root has the largest number
    children: dict[int, list[int]]

    @classmethod
    def of(cls, n_clusters: int, tree: MergeTree | None) -> ClusterTree:
        """Make the tree of a merge tree, or of one group that holds all clusters."""
        if tree is not None:
            pairs = np.asarray(tree.children)
            n_nodes, number = 2 * n_clusters - 1, np.arange(n_clusters, 2 * n_clusters - 1)
            is_tree = np.array_equal(np.sort(pairs, axis=None), np.arange(n_nodes - 1))
            if not is_tree or (pairs >= number[:, None]).any():
                raise InvalidInputError(f"the tree does not merge {n_clusters} clusters into one.")
            return cls(n_clusters, {n_clusters + i: pair for i, pair in enumerate(pairs.tolist())})
        return cls(n_clusters, {n_clusters: [*range(n_clusters)]})

    @property
    def root(self) -> int:
        """The node that holds all clusters."""
        return max(self.children, default=0)

    def leaves(self) -> dict[int, np.ndarray]:
        """Return the clusters in every node."""
        leaves = {cluster: np.array([cluster]) for cluster in range(self.n_clusters)}
        for node in sorted(self.children):
            inside = [leaves[child] for child in self.children[node]]
            leaves[node] = np.concatenate([*inside, np.empty(0, np.int64)])
        return leaves

    def layer(self, size: int) -> list[int]:
        """Return the nodes of the layer of so many clusters, in the order of its labels."""
        merged: set[int] = set()
        for node in range(self.n_clusters, 2 * self.n_clusters - size):
            merged.update(self.children[node])
        return [node for node in range(2 * self.n_clusters - size) if node not in merged]


def score_terms(
    tree: ClusterTree, counts: csr_array, sizes: np.ndarray, wanted: set[int]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield nodes of a tree, each with the scores of the terms, float64, shape (n_terms,).

    A term's score is the fraction of the node's texts that hold it, times how much more often it
    is there than in the sibling: log p/q, plus half of what the parent has against its own sibling,
    a quarter of the next, and so on. A name that only tells siblings apart would say "declined"
    where both are about card payments; one that tells it from all clusters would say neither.
    """
    leaves = tree.leaves()

    def total(node: int) -> tuple[np.ndarray, float]:
        held = np.asarray(counts[leaves[node]].sum(0), np.float64).ravel()
        return held, float(sizes[leaves[node]].sum())

    # of a node without siblings the most frequent terms are taken
    stack: list[Any] = [(tree.root, None, np.zeros(counts.shape[1]))] if leaves else []
    while stack:
        node, parent, above = stack.pop()
        held, size = total(node)
        contrast = above
        if parent is not None:
            rest, rest_size = parent[0] - held, parent[1] - size
            odds = (held + 0.5) / (size + 1) * (rest_size + 1) / (rest + 0.5)
            contrast = np.log(odds) + _DECAY * above
        if node in wanted:
            weight = contrast if parent is not None else np.ones(len(held))
            yield node, held / max(size, 1.0) * weight
        # small nodes are next, so that few sums wait in the stack
        inner = sorted(tree.children.get(node, ()), key=lambda child: -len(leaves[child]))
        stack += [(child, (held, size), contrast) for child in inner]


def choose_terms(names: np.ndarray, scores: np.ndarray, n_terms: int = _KEPT) -> list[str]:
    """Choose the terms with the highest scores; none repeats the words of another.

    >>> choose_terms(np.array(["card", "lost card", "pin"]), np.array([3.0, 2.0, 1.0]))
    ['lost card', 'pin']
    """
    chosen: list[str] = []
    for place in np.argsort(-scores, kind="stable")[: 20 * n_terms].tolist():
        if scores[place] <= 0:
            break
        term, words = str(names[place]), set(str(names[place]).split())
        if any(words <= set(other.split()) for other in chosen):
            continue
        said = [other for other in chosen if set(other.split()) < words]
        if said:  # the longer term takes the place of the words in it
            chosen[chosen.index(said[0])] = term
            chosen = [other for other in chosen if other not in said]
        elif len(chosen) < n_terms:
            chosen.append(term)
        else:
            break
    return chosen


Namer = Callable[[list[str], list[str]], str]
NAMES = "names.json"
_FORMAT = 1
# terms in a name, and at most where less than half of a cluster's texts hold one of the first
_FEWEST_NAMED = 4
_MOST_NAMED = 6
_HALF = 0.5
# characters of a name: a line of a terminal
_NAME_LENGTH = 80
# characters of a term: two words of at most 40 letters, and more from other versions
_TERM_LENGTH = 130
# characters of an exemplar: about four lines of a report
_TEXT_LENGTH = 300
# texts whose terms are counted at most
_MOST_TEXTS = 200_000
# rows among which exemplars with different texts are chosen
_MOST_RANKED = 64
# marks without which some scripts cannot be written; all others that are not seen are left out
_JOINERS = "\u200c\u200d"


class Exemplar(NamedTuple):
    """A row that shows what a cluster is about; the text is empty where rows are not texts."""

    row: int
    text: str


class ClusterName(NamedTuple):
    """What a cluster is called, and why: its key terms, its exemplars, its number of rows."""

    name: str
    terms: list[str]
    exemplars: list[Exemplar]
    size: int


class Names(NamedTuple):
    """Names of the clusters, by label, and of coarser layers, by their number of clusters."""

    clusters: list[ClusterName]
    layers: dict[int, list[ClusterName]]

    def columns(self, layers: Mapping[int, np.ndarray]) -> dict[str, list[str]]:
        """List what every cluster is called: ``name``, and ``name_<number>`` of these layers."""
        listed = {"name": [one.name for one in self.clusters]}
        for size, merged in layers.items():
            if size in self.layers:
                listed[f"name_{size}"] = [self.layers[size][one].name for one in merged.tolist()]
        return listed


def name_clusters(
    texts: Sequence[str] | None,
    labels: np.ndarray,
    *,
    tree: MergeTree | None = None,
    layer_sizes: Sequence[int] = (),
    graph: SimilarityGraph | None = None,
    n_clusters: int | None = None,
    language: str = "english",
    n_words: int = 2,
    n_exemplars: int = 3,
    namer: Namer | None = None,
) -> Names:
    """Name clusters, and the layers that they merge to, by what their texts say.

    Key terms are what the texts of a cluster hold more often than those of its sibling in the tree.
    Exemplars are the rows with the most weight of edges inside their cluster, less that of edges
    that leave it.

    Parameters
    ----------
    texts : sequence of str, or None
        One for each row. Without texts, clusters get exemplars and are called by their number.
    labels : int array, shape (n_samples,)
        The cluster of every row; rows of −1 are left out.
    tree : MergeTree, optional
        ``merge_tree_`` of an estimator. Without it clusters are contrasted with all others.
    layer_sizes : sequence of int
        Numbers of clusters to which the tree merges, such as ``layer_sizes_`` of an estimator.
    graph : SimilarityGraph, optional
        Of the rows. Without it exemplars are the texts that have most of the key terms.
    n_clusters : int, optional
        By default one more than the largest label, or as many as the tree merges.
    language : str
        Whose stop words are no terms: ``"english"``; ``"any"``, where words in more than a fifth of
        the texts are left out; or a .txt file with a word per line.
    n_words : int
        Words of the longest terms.
    n_exemplars : int
    namer : callable, optional
        Called with the key terms and the exemplars of a cluster; returns its name. What it returns
        is cut to 80 characters, without control characters; where it fails, the key terms remain.

    Examples
    --------
    >>> texts = ["lost my card", "card was lost", "exchange rate today", "today's exchange rate"]
    >>> names = name_clusters(texts, np.array([0, 0, 1, 1]))
    >>> [cluster.name for cluster in names.clusters]
    ['card lost', 'exchange rate, rate today, today exchange']
    """
    labels = np.asarray(labels, np.int64).reshape(-1)
    if texts is not None and len(texts) != len(labels):
        raise InvalidInputError(f"{len(texts)} texts for {len(labels)} labels; pass one per row.")
    if n_clusters is None:
        n_clusters = int(labels.max(initial=-1)) + 1 if tree is None else len(tree.children) + 1
    if labels.max(initial=-1) >= n_clusters:
        raise InvalidInputError(f"labels up to {labels.max()} are not of {n_clusters=}.")
    nodes = ClusterTree.of(n_clusters, tree)
    layers = _list_layers(nodes, tree, layer_sizes)
    how = {"with_rows": graph is None}  # a graph ranks them better
    terms, in_name, ranked = _find_terms(texts, labels, nodes, layers, language, n_words, **how)
    named: dict[int, list[ClusterName]] = {}
    for size, merged, members in layers:
        of_rows = np.where(labels < 0, -1, merged[labels]) if size else labels
        by_links = {} if graph is None else _rank_by_links(graph.to_scipy(), of_rows)
        counts = np.bincount(of_rows[of_rows >= 0], minlength=size).tolist()
        named[size] = []
        for number, node in enumerate(members):
            rows = (ranked.get(node) if graph is None else by_links.get(number)) or []
            exemplars = _choose_exemplars(texts, rows, n_exemplars)
            about = terms.get(node, []), exemplars
            name = _choose_name(namer, *about, in_name.get(node, 0)) or f"cluster {number}"
            named[size].append(ClusterName(name, *about, counts[number]))
    return Names(named.pop(n_clusters), named)


def clean_text(text: str, most: int) -> str:
    r"""Return a stranger's text as one line that no terminal or page takes for anything else.

    Control characters, marks of direction and all else that is not seen become spaces.

    >>> clean_text("\x1b[31mred\u202e  and  more", 12)
    '[31mred and…'
    """
    seen = "".join(one if one.isprintable() or one in _JOINERS else " " for one in text[: 9 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def write_names(folder: Folder, names: Names) -> None:
    """Write ``names.json``, replacing one that is there."""
    content = {
        "format": _FORMAT,
        "clusters": [_describe(cluster) for cluster in names.clusters],
        "layers": {str(size): [*map(_describe, layer)] for size, layer in names.layers.items()},
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


def _describe(cluster: ClusterName) -> dict[str, Any]:
    return {**cluster._asdict(), "exemplars": [one._asdict() for one in cluster.exemplars]}


def _parse(content: Any) -> ClusterName:
    exemplars = [
        Exemplar(whole_number(one["row"]), clean_text(one["text"], _TEXT_LENGTH))
        for one in content["exemplars"]
    ]
    terms = [clean_text(term, _TERM_LENGTH) for term in content["terms"]]
    name, size = clean_text(content["name"], _NAME_LENGTH), whole_number(content["size"])
    return ClusterName(name, terms, exemplars, size)


class _Layer(NamedTuple):
    """Number of clusters, what every cluster of the fit is called, and the nodes of the tree."""

    size: int
    merged: np.ndarray
    members: list[int]


def _list_layers(nodes: ClusterTree, tree: MergeTree | None, sizes: Sequence[int]) -> list[_Layer]:
    n_clusters = nodes.n_clusters
    layers = [_Layer(n_clusters, np.arange(n_clusters), [*range(n_clusters)])]
    coarser = [size for size in sizes if size != n_clusters]
    if coarser and (tree is None or not 1 <= min(coarser) <= max(coarser) < n_clusters):
        raise InvalidInputError(
            f"layer_sizes={[*sizes]} need a tree, and sizes from 1 to {n_clusters=}."
        )
    if tree is not None:
        layers += [_Layer(size, tree.labels(size), nodes.layer(size)) for size in coarser]
    return layers


def _find_terms(
    texts: Sequence[str] | None,
    labels: np.ndarray,
    nodes: ClusterTree,
    layers: list[_Layer],
    language: str,
    n_words: int,
    *,
    with_rows: bool,
) -> tuple[dict[int, list[str]], dict[int, int], dict[int, list[int]]]:
    """Return every node's key terms, how many name it and, if wanted, rows with most of them."""
    if texts is None or not nodes.n_clusters:
        return {}, {}, {}
    rows = np.flatnonzero(labels >= 0)
    if len(rows) > _MOST_TEXTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MOST_TEXTS, replace=False))
    found = TextTerms.find([str(texts[row]) for row in rows.tolist()], language, n_words)
    counts = found.of_clusters(labels[rows], nodes.n_clusters)
    sizes = np.bincount(labels[rows], minlength=nodes.n_clusters).astype(np.float64)
    members = {
        node: np.flatnonzero(layer.merged == number)
        for layer in layers
        for number, node in enumerate(layer.members)
    }
    terms, in_name, ranked = {}, {}, {}
    column = {name: number for number, name in enumerate(found.names)}
    of_cluster = np.split(
        np.argsort(labels[rows], kind="stable"), np.cumsum(sizes).astype(int)[:-1]
    )
    length = np.sqrt(np.maximum(np.diff(found.held.indptr), 1))
    for node, scores in score_terms(nodes, counts, sizes, set(members)):
        terms[node] = choose_terms(found.names, scores)
        inside = np.sort(np.concatenate([of_cluster[cluster] for cluster in members[node]]))
        held = found.held[inside][:, [column[term] for term in terms[node][:_MOST_NAMED]]]
        shares = (held.toarray().cumsum(1) > 0).sum(0) / max(1, len(inside))
        few = shares[_FEWEST_NAMED - 1 : _MOST_NAMED - 1] < _HALF
        in_name[node] = _FEWEST_NAMED + int(few.sum())
        if not with_rows:
            continue
        fit = found.held[inside] @ np.maximum(scores, 0) / length[inside]
        ranked[node] = rows[inside[np.argsort(-fit, kind="stable")[:_MOST_RANKED]]].tolist()
    return terms, in_name, ranked


def _rank_by_links(weight: csr_array, labels: np.ndarray) -> dict[int, list[int]]:
    """Rank rows of every group by the weight of their edges inside it, less that of the others."""
    links = weight.tocoo()
    stays = labels[links.row] == labels[links.col]
    inside = np.bincount(links.row, np.where(stays, links.data, -links.data), len(labels))
    # sums of equal weights differ by rounding
    order = np.lexsort((-inside.round(6), labels))
    groups, first = np.unique(labels[order], return_index=True)
    ranked = zip(groups.tolist(), np.split(order, first[1:]), strict=True)
    return {group: rows[:_MOST_RANKED].tolist() for group, rows in ranked}


def _choose_exemplars(
    texts: Sequence[str] | None, rows: Sequence[int], n_rows: int
) -> list[Exemplar]:
    """Choose the first rows, of texts those that differ and are not empty."""
    if texts is None:
        return [Exemplar(row, "") for row in rows[:n_rows]]
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
