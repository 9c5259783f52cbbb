"""The contest's data sets and its two halves.

Rules may be changed by what the development half shows; the test half is run once per release
candidate. A collection (all sets made of the same items) is drawn as a whole: by the parity of the
SHA-256 of its name, never again; what was drawn is in ``contest_halves.txt``. The collections of
the older tables have set the rules that the defaults follow, so they are development by decree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.harness.contest import images, tables, texts
from benchmarks.harness.contest.planted import PLANTED
from benchmarks.harness.contest.sources import Rows, find_data_file
from benchmarks.harness.contest.tails import TAILS, take_tail
from benchmarks.harness.datasets import load_dataset

from prcut.errors import InvalidInputError

__all__ = [
    "CONTEST_SETS",
    "HALVES",
    "HALVES_FILE",
    "KINDS",
    "ContestSet",
    "describe_halves",
    "load_contest_set",
]

HALVES = "development", "test"
HALVES_FILE = Path(__file__).parent / "contest_halves.txt"
KINDS = "text", "image", "table", "planted"
_DECREED = (
    *("mnist", "fashion_mnist", "usps", "coil20", "cifar10"),
    *("banking77", "clinc150", "stackoverflow", "digits"),
    # prototypes of the rule for unequal clusters were scored on these two
    *("tweet", "google_news"),
)


class ContestSet(NamedTuple):
    """A data set of the contest."""

    name: str
    collection: str
    kind: str
    load: Callable[[], Rows]

    @property
    def half(self) -> str:
        """``"development"`` or ``"test"``."""
        if self.collection in _DECREED:
            return "development"
        digest = hashlib.sha256(self.collection.encode()).digest()
        return HALVES[digest[-1] % 2]


def load_contest_set(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 rows (n_samples, n_features) and int64 labels (n_samples,)."""
    if name not in CONTEST_SETS:
        known = ", ".join(CONTEST_SETS)
        raise InvalidInputError(f"{name!r} is no data set of the contest; choose from {known}.")
    rows, labels = CONTEST_SETS[name].load()
    numbered = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return np.ascontiguousarray(rows, np.float32), numbered


def describe_halves() -> str:
    """Return the lines that ``contest_halves.txt`` must hold."""
    lines = [
        "# half, kind, data set, collection; written before anything was run, never drawn again",
        f"# development by decree: {', '.join(_DECREED)}",
        "# gagolewski_suite.npz is of the test half, and has a script of its own",
    ]
    ordered = sorted(CONTEST_SETS.values(), key=lambda one: (one.half, KINDS.index(one.kind)))
    lines += [f"{one.half} {one.kind} {one.name} {one.collection}" for one in ordered]
    return "\n".join(lines) + "\n"


def _load_digits() -> Rows:
    rows, labels = tables.load_sklearn("digits")
    return rows / 16, labels


def _load_coil20_clip() -> Rows:
    """Load COIL-20 by CLIP."""
    with np.load(find_data_file("coil20_clip.npz")) as file:
        return file["x"].astype(np.float32), file["y"]


def _load_cifar10() -> Rows:
    """Load 5,000 images by EfficientNet-Lite0, as in the older tables."""
    from benchmarks.harness.encoders import embed_once

    dataset = load_dataset("cifar10", "test")
    return embed_once(dataset.items[:5000], "efficientnet-lite0"), dataset.labels[:5000]


_SPLITS = {"mnist": "train", "fashion_mnist": "train", "usps": "all", "coil20": "all"}
_TEXTS: dict[str, Callable[[], texts.Texts]] = {
    **{name: partial(texts.read_text_set, name) for name in _DECREED[5:8]},
    "agnews": partial(texts.read_text_set, "agnews8000"),
    "trec": partial(texts.read_text_set, "trec_train"),
    "wordnet": texts.read_wordnet,
    "fortunes": texts.read_fortunes,
    "emoji": texts.read_emoji,
}
# collections of text_sets_2.json.gz and their sets
_NEW_TEXTS = {
    "tweet": ("tweet",),
    "google_news": ("google_news_t", "google_news_s", "google_news_ts"),
    "search_snippets": ("search_snippets",),
    "biomedical": ("biomedical",),
    "massive": ("massive_scenario", "massive_intent"),
    "snips": ("snips",),
    "bbc_news": ("bbc_news",),
    "m10": ("m10",),
    "dblp": ("dblp",),
    "newsgroups20": ("newsgroups20",),
}
_KEEL = (
    *("letter", "penbased", "texture", "segment", "spambase"),
    *("mushroom", "movement_libras", "magic", "led7digit"),
)
_R_TABLES = {
    "shuttle": ("mlbench", "Shuttle", "Class"),
    "glass": ("mlbench", "Glass", "Type"),
    "soybean": ("mlbench", "Soybean", "Class"),
    "ionosphere": ("mlbench", "Ionosphere", "Class"),
    "sonar": ("mlbench", "Sonar", "Class"),
    "musk": ("kernlab", "musk", "Class"),
    "fruit": ("rrcov", "fruit", "cultivar"),
}


def _list_images() -> list[ContestSet]:
    return [
        *(
            ContestSet(name, name, "image", partial(images.load_pixels, name, split))
            for name, split in _SPLITS.items()
        ),
        ContestSet("mnist_long_tail", "mnist", "image", images.load_long_tail),
        ContestSet("coil20_clip", "coil20", "image", _load_coil20_clip),
        ContestSet("digits", "digits", "image", _load_digits),
        ContestSet("optdigits", "digits", "image", partial(tables.load_keel, "optdigits")),
        ContestSet("cifar10", "cifar10", "image", _load_cifar10),
        ContestSet("indian_pines", "indian_pines", "image", images.load_indian_pines),
        ContestSet("faces", "faces", "image", images.load_faces),
        ContestSet("glyphs", "glyphs", "image", images.load_glyphs),
        ContestSet("openclipart", "openclipart", "image", images.load_openclipart),
    ]


def _list_texts() -> list[ContestSet]:
    """Every set by MiniLM; those that no table has had also by static vectors, and one that has."""
    by_minilm = [
        ContestSet(name, name, "text", partial(texts.embed_minilm, read))
        for name, read in _TEXTS.items()
    ]
    by_vectors = [
        ContestSet(f"{name}_static", name, "text", partial(texts.embed_wordllama, _TEXTS[name]))
        for name in ("stackoverflow", "agnews", "trec", "wordnet")
    ]
    for collection, names in _NEW_TEXTS.items():
        for name in names:
            read = partial(texts.read_text_set, name)
            by_minilm.append(
                ContestSet(name, collection, "text", partial(texts.embed_minilm, read))
            )
            by_vectors.append(
                ContestSet(
                    f"{name}_static", collection, "text", partial(texts.embed_wordllama, read)
                )
            )
    return by_minilm + by_vectors


def _list_tables() -> list[ContestSet]:
    loaders: dict[str, Callable[[], Rows]] = {
        **{name: partial(tables.load_sklearn, name) for name in ("iris", "wine", "breast_cancer")},
        **{name: partial(tables.load_keel, name) for name in _KEEL},
        **{name: partial(tables.load_r_table, *where) for name, where in _R_TABLES.items()},
        "cattle": partial(tables.load_genotypes, "microbov"),
        "human_genomes": partial(tables.load_genotypes, "eHGDP"),
        "pbmc": tables.load_pbmc,
    }
    return [ContestSet(name, name, "table", load) for name, load in loaders.items()]


def _list_planted() -> list[ContestSet]:
    return [ContestSet(name, name, "planted", load) for name, load in PLANTED.items()]


def _list_tails(sets: dict[str, ContestSet]) -> list[ContestSet]:
    """Every set of ``TAILS`` with classes of unequal sizes, in two shapes."""
    return [
        sets[name]._replace(name=f"{name}_{shape}", load=partial(take_tail, sets[name].load, shape))
        for name in TAILS
        for shape in ("rank", "exponential")
    ]


CONTEST_SETS = {
    one.name: one for one in (*_list_texts(), *_list_images(), *_list_tables(), *_list_planted())
}
CONTEST_SETS |= {one.name: one for one in _list_tails(CONTEST_SETS)}
