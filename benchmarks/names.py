"""Names of clusters beside BERTopic's on the same clusters, measured without labels.

    python benchmarks/names.py            # four sets of texts, MiniLM; a few minutes
    python benchmarks/names.py --quick    # a slice of Banking77 with vectors of scikit-learn

A fifth of the texts is held out. The rest is clustered, into as many clusters as there are classes,
and named; a held-out text belongs to the cluster that the assigner gives it. The figure is the
fraction of held-out texts whose nearest name, by the encoder of the texts, is that of their own
cluster. BERTopic's name is its default one, the four words with the highest c-TF-IDF; "as many" are
as many words as ours has terms, "all words" its ten. English stop words are left out of both but in
"as shipped".
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from benchmarks.harness.contest.texts import read_text_set
from benchmarks.harness.encoders import embed_once
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from _shared import Table, keep, options_of, verdict
from prcut import PRCut
from prcut.curate.names import name_clusters
from prcut.errors import PRCutError

Encode = Callable[[list[str]], np.ndarray]
# texts of each set: MiniLM encodes some 150 a second
N_TEXTS = 3000
QUICK_TEXTS, QUICK_CLASSES = 1200, 12
# about one standard error of a fraction of the 240 texts that are held out of them
QUICK_SLACK = 0.02
# clusters of each set that are printed, drawn by seed
N_SHOWN = 6
SETS = {
    "banking77": "Banking77",
    "stackoverflow": "StackOverflow",
    "agnews8000": "AG News",
    "trec_train": "TREC",
}
# what the numbers stand for, as the sets' authors say
CLASSES = {
    "stackoverflow": "wordpress oracle svn apache excel matlab visual-studio cocoa osx bash spring "
    "hibernate scala sharepoint ajax qt drupal linq haskell magento",
    "agnews8000": "World Sports Business Sci/Tech",
}
METHODS = ("prcut", "BERTopic", "BERTopic, as many", "BERTopic, all words", "BERTopic as shipped")


class TextSet(NamedTuple):
    """Texts, their classes, which are only printed, and what makes vectors of texts."""

    texts: list[str]
    classes: list[str]
    encode: Encode


def load(name: str, n_texts: int) -> TextSet:
    """Draw texts of a set by seed."""
    texts, classes = read_text_set(name)
    if name in CLASSES:
        classes = [CLASSES[name].split()[int(one) - 1] for one in classes]
    drawn = np.sort(np.random.default_rng(0).permutation(len(texts))[:n_texts]).tolist()
    return TextSet(
        [texts[i] for i in drawn], [classes[i] for i in drawn], partial(embed_once, model="minilm")
    )


def load_quick() -> TextSet:
    """Load some classes of Banking77, with vectors that need no package but scikit-learn."""
    texts, classes = read_text_set("banking77")
    kept = set(sorted(set(classes))[:QUICK_CLASSES])
    chosen = [i for i, one in enumerate(classes) if one in kept][:QUICK_TEXTS]
    texts, classes = [texts[i] for i in chosen], [classes[i] for i in chosen]
    encoder = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(50, random_state=0))
    encoder.fit(texts)
    return TextSet(texts, classes, lambda some: encoder.transform(some).astype(np.float32))


def bertopic_words(texts: list[str], labels: np.ndarray, stop_words: Any) -> list[list[str]]:
    """Return the ten words that BERTopic gives to every cluster."""
    from bertopic import BERTopic
    from bertopic.cluster import BaseCluster
    from bertopic.dimensionality import BaseDimensionalityReduction

    class Given(BaseCluster):  # type: ignore[misc]
        labels_ = labels

        def fit(self, *_: Any) -> "Given":
            return self

    topics = BERTopic(
        embedding_model=None,
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=Given(),
        vectorizer_model=CountVectorizer(stop_words=stop_words),
    )
    found, _ = topics.fit_transform(texts, np.zeros((len(texts), 2)))
    # it numbers topics anew, by size
    number = {int(label): int(topic) for label, topic in zip(labels, found, strict=True)}
    words = {label: topics.get_topic(topic) for label, topic in number.items()}
    return [[word for word, _ in words.get(label, [])] for label in range(int(labels.max()) + 1)]


def measure(given: TextSet, title: str, shown: Table) -> dict[str, float]:
    """Return the figure of every method on a set, and print some of the names."""
    rows = given.encode(given.texts)
    held = np.random.default_rng(1).random(len(rows)) < 0.2
    seen, n_clusters = np.flatnonzero(~held), len(set(given.classes))
    model = PRCut(n_clusters, metric="cosine", random_state=0).fit(rows[seen])
    texts, labels = [given.texts[i] for i in seen], model.labels_
    named = name_clusters(texts, labels, tree=model.merge_tree_).clusters
    plain, shipped = (bertopic_words(texts, labels, words) for words in ("english", None))
    names = {
        "prcut": [one.name for one in named],
        "BERTopic": [", ".join(words[:4]) for words in plain],
        "BERTopic, as many": [
            ", ".join(words[: 1 + one.name.count(", ")])
            for words, one in zip(plain, named, strict=True)
        ],
        "BERTopic, all words": [", ".join(words) for words in plain],
        "BERTopic as shipped": [", ".join(words[:4]) for words in shipped],
    }
    own = model.predict(rows[held])
    encoded = given.encode([name for method in METHODS for name in names[method]])
    shares = {}
    for method, vectors in zip(METHODS, np.split(encoded, len(METHODS)), strict=True):
        nearest = (_unit(rows[held]) @ _unit(vectors).T).argmax(1)
        shares[method] = float((nearest == own).mean())
    drawn = np.random.default_rng(0).permutation(n_clusters)[:N_SHOWN]
    classes = np.array(given.classes)[seen]
    for cluster in sorted(drawn.tolist()):
        kinds, counts = np.unique(classes[labels == cluster], return_counts=True)
        main = f"{kinds[counts.argmax()]} ({counts.max() / counts.sum():.0%})"
        bertopic = names["BERTopic"][cluster]
        shown.add(title, main, names["prcut"][cluster], bertopic)
    return shares


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def main() -> int:
    parser = options_of(__doc__, "a slice of Banking77, TF-IDF vectors")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    shown = Table("set", "most frequent class (of its rows)", "prcut", "BERTopic")
    measured: dict[str, dict[str, float]] = {}
    try:
        if quick:
            title = f"Banking77, {QUICK_CLASSES} classes"
            measured[title] = measure(load_quick(), title, shown)
        else:
            for name, title in SETS.items():
                measured[title] = measure(load(name, N_TEXTS), title, shown)
    except (PRCutError, ImportError) as error:
        print(f"{error}\nNothing was measured.")
        return 0 if os.environ.get("CI") else 2
    print()
    table = Table("set", *METHODS)
    for title, shares in measured.items():
        table.add(title, *(f"{shares[method]:.3f}" for method in METHODS))
    if not quick:
        keep("names", table, shown)
    short = [
        f"{title}: {shares['prcut']:.3f} of the texts are nearest to their name, "
        f"{shares[method]:.3f} to that of {method}"
        for title, shares in measured.items()
        for method in ("BERTopic", "BERTopic as shipped")
        if shares["prcut"] < shares[method] - (QUICK_SLACK if quick else 0)
    ]
    return verdict(short, "more texts are nearest to their cluster's name than to BERTopic's")


if __name__ == "__main__":
    sys.exit(main())
