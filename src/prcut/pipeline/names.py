"""Names of clusters and of layers, from key terms of their texts or by a language model.

::

    names.json      in a run folder: name, key terms and exemplars of every cluster and layer
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from prcut.errors import CorruptFileError, DataWarning, InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.pipeline.terms import ClusterTree, TextTerms, choose_terms, score_terms
from prcut.runtime.folder import Folder, check_format, parsing, whole_number
from prcut.search.merge import MergeTree

Namer = Callable[[list[str], list[str]], str]
NAMES = "names.json"
_FORMAT = 1
# terms in a name: more than the fewest where less than half of a cluster's texts hold one of these
_FEWEST_NAMED, _MOST_NAMED, _HALF = 4, 6, 0.5
# characters of a name, of a term and of an exemplar
_NAME_LENGTH, _TERM_LENGTH, _TEXT_LENGTH = 80, 130, 300
# texts whose terms are counted at most
_MOST_TEXTS = 200_000
# steps of the walk that should stay in its cluster
_STEPS = 8
# rows among which exemplars with different texts are chosen
_MOST_RANKED = 64
# a namer that fails so often in a row is not asked again
_FAILURES = 3
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
    Exemplars are the row whose random walk on the graph is likeliest to stay in the cluster, and
    the rows nearest to it.

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
    ask = _Asked(namer)
    for size, merged, members in layers:
        of_rows = np.where(labels < 0, -1, merged[labels]) if size else labels
        by_walk = {} if graph is None else _rank_by_walk(graph.to_scipy(), of_rows)
        counts = np.bincount(of_rows[of_rows >= 0], minlength=size).tolist()
        named[size] = []
        for number, node in enumerate(members):
            rows = (ranked.get(node) if graph is None else by_walk.get(number)) or []
            exemplars = _choose_exemplars(texts, rows, n_exemplars)
            about = terms.get(node, []), exemplars
            name = ask(*about, in_name.get(node, 0)) or f"cluster {number}"
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


def _rank_by_walk(weight: csr_array, labels: np.ndarray) -> dict[int, list[int]]:
    """Rank rows of every group: the one whose walk stays inside most, then those nearest to it."""
    degree = np.asarray(weight.sum(1), np.float64).ravel()
    step = csr_array(weight, dtype=np.float64, copy=True)
    source = np.repeat(np.arange(len(labels)), np.diff(step.indptr))
    step.data *= (labels[source] == labels[step.indices]) & (labels[source] >= 0)
    step = csr_array(diags_array(1 / np.maximum(degree, 1e-300)) @ step)
    stays = np.ones(len(labels))
    for _ in range(_STEPS):
        stays = step @ stays
    # walks that never leave differ only by rounding: the row with most weight is taken
    order = np.lexsort((-degree, -stays.round(6), labels))
    groups, first = np.unique(labels[order], return_index=True)
    stops = [*first[1:].tolist(), len(order)]
    spans = zip(groups.tolist(), first.tolist(), stops, strict=True)
    best = {group: order[start : min(stop, start + _MOST_RANKED)] for group, start, stop in spans}
    best.pop(-1, None)
    centers = np.array([rows[0] for rows in best.values()], np.int64)
    shape = len(centers), len(labels)
    starts = csr_array((np.ones(len(centers)), (np.arange(len(centers)), centers)), shape=shape)
    once = starts @ step
    visits = csr_array(once + once @ step)
    ranked: dict[int, list[int]] = {}
    for number, (group, rows) in enumerate(best.items()):
        span = slice(visits.indptr[number], visits.indptr[number + 1])
        near = visits.indices[span][np.argsort(-visits.data[span], kind="stable")]
        ranked[group] = [*dict.fromkeys([int(rows[0]), *near.tolist(), *rows.tolist()])]
    return ranked


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


class _Asked:
    """Names by a namer, or the first key terms where there is none or it fails."""

    def __init__(self, namer: Namer | None) -> None:
        self._namer, self._n_failures = namer, 0

    def __call__(self, terms: list[str], exemplars: list[Exemplar], n_named: int) -> str:
        if self._namer is not None and self._n_failures < _FAILURES and (terms or exemplars):
            try:
                answer = self._namer([*terms], [one.text for one in exemplars])
                if not isinstance(answer, str) or not clean_text(answer, _NAME_LENGTH):
                    raise TypeError(f"the name is {repr(answer)[:40]}")
                self._n_failures = 0
                return clean_text(answer, _NAME_LENGTH)
            except Exception as error:
                self._n_failures += 1
                stops = "; it is not asked again" if self._n_failures == _FAILURES else ""
                reason = clean_text(f"{type(error).__name__}: {error}", 200)
                message = f"the namer failed ({reason}){stops}: the key terms are the name."
                warnings.warn(message, DataWarning, stacklevel=3)
        while n_named > _FEWEST_NAMED and len(", ".join(terms[:n_named])) > _NAME_LENGTH:
            n_named -= 1  # rather than cut a term
        return clean_text(", ".join(terms[:n_named]), _NAME_LENGTH)
