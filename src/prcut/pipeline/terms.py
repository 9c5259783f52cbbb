"""Key terms of clusters: what their texts say that the texts of their siblings do not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
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
    order, spans = _list_leaves(tree)
    counts, sizes = csr_array(counts[order]), sizes[order]

    def total(node: int) -> tuple[np.ndarray, float]:
        span = slice(*spans[node])
        return np.asarray(counts[span].sum(0), np.float64).ravel(), float(sizes[span].sum())

    # of a node without siblings the most frequent terms are taken
    stack: list[Any] = [(tree.root, None, np.zeros(counts.shape[1]))]
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
        inner = sorted(tree.children.get(node, ()), key=lambda n: spans[n][0] - spans[n][1])
        stack += [(child, (held, size), contrast) for child in inner]


def _list_leaves(tree: ClusterTree) -> tuple[np.ndarray, dict[int, tuple[int, int]]]:
    """Order the clusters so that those of every node are a span; return the spans as well."""
    order: list[int] = []
    spans: dict[int, tuple[int, int]] = {}
    stack = [(tree.root, -1)]
    while stack:
        node, start = stack.pop()
        if start >= 0:
            spans[node] = start, len(order)
        elif node < tree.n_clusters:
            spans[node] = len(order), len(order) + 1
            order.append(node)
        else:
            stack.append((node, len(order)))
            stack += [(child, -1) for child in tree.children[node]]
    return np.array(order, np.int64), spans


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
