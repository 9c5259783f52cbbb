"""Texts with classes, encoded by a small transformer or by the mean of static word vectors."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.harness.contest.sources import (
    Rows,
    find_data_file,
    find_debian_file,
    find_package_file,
    import_reader,
)

from prcut.errors import PRCutError

__all__ = [
    "Texts",
    "embed_minilm",
    "embed_wordllama",
    "read_emoji",
    "read_fortunes",
    "read_text_set",
    "read_wordnet",
]

Texts = tuple[list[str], list[str]]
"""Texts and the names of their classes."""

# MiniLM encodes some 50 texts a second on one core
_MAX_TEXTS, _MAX_GLOSSES, _MAX_FORTUNES = 20_000, 10_000, 5_000
_MIN_CLASS = 20
_FILES = "text_sets.json.gz", "text_sets_2.json.gz"


def embed_minilm(read: Callable[[], Texts]) -> Rows:
    """Encode texts by MiniLM, as the harness's tables do."""
    from benchmarks.harness.encoders import embed_once

    texts, classes = read()
    return embed_once(texts, "minilm"), np.array(classes)


def embed_wordllama(read: Callable[[], Texts]) -> Rows:
    """Encode texts by the mean of their tokens' static vectors, read without wordllama's code."""
    texts, classes = read()
    path = "tokenizers/l2_supercat_tokenizer_config.json"
    tokenizer = import_reader("tokenizers").Tokenizer.from_file(
        str(find_package_file("wordllama", path))
    )
    weights = find_package_file("wordllama", "weights/l2_supercat_256.safetensors")
    vectors = import_reader("safetensors.numpy").load_file(weights)["embedding.weight"]
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    rows = [vectors[one.ids].astype(np.float32).mean(0) for one in encoded]
    return np.stack(rows), np.array(classes)


def read_text_set(name: str) -> Texts:
    """Read a set from the two files of texts, at most 20,000 of them."""
    for file in _FILES:
        content = _read_json(find_data_file(file))
        if name in content:
            texts, numbers, names = (content[name][part] for part in ("text", "label", "classes"))
            return _sample(texts, [names[number] for number in numbers], _MAX_TEXTS)
    raise PRCutError(f"{' and '.join(_FILES)} hold no set {name!r}.")


@lru_cache(maxsize=1)
def _read_json(path: Path) -> Any:
    with gzip.open(path) as file:
        return json.load(file)


def read_wordnet() -> Texts:
    """Read a sample of WordNet's glosses, without examples; the lexicographer's file is the class.

    A line is ``offset file type … | gloss; "example"``.
    """
    folder = find_debian_file("wordnet-base", "/usr/share/wordnet")
    texts, classes = [], []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text("utf-8").splitlines():
            head, bar, gloss = line.partition("|")
            if bar and not line.startswith(" "):
                texts.append(gloss.split('; "')[0].strip())
                classes.append(head.split()[1])
    return _keep_classes(*_sample(texts, classes, _MAX_GLOSSES))


def read_fortunes() -> Texts:
    """Read a sample of the fortunes; the file that holds them is the class."""
    folder = find_debian_file("fortunes", "/usr/share/games/fortunes")
    texts, classes = [], []
    for path in sorted(folder.iterdir()):
        if not path.suffix:
            cookies = [text.strip() for text in path.read_text("utf-8", "replace").split("\n%\n")]
            found = [text for text in cookies if text]
            texts += found
            classes += [path.name] * len(found)
    return _keep_classes(*_sample(texts, classes, _MAX_FORTUNES))


def read_emoji() -> Texts:
    """Read the names of emoji without their tones of skin; the group of Unicode is the class."""
    path = find_debian_file("unicode-data", "/usr/share/unicode/emoji/emoji-test.txt")
    texts, classes, group = [], [], ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# group:"):
            group = line.partition(":")[2].strip()
        named = re.search(r"; fully-qualified +# \S+ E[\d.]+ (.+)$", line)
        if named and "skin tone" not in line:
            texts.append(named[1])
            classes.append(group)
    return texts, classes


def _sample(texts: list[str], classes: list[str], n_texts: int) -> Texts:
    """Draw texts without replacement, in their order."""
    chosen = np.random.default_rng(0).permutation(len(texts))[:n_texts]
    return [texts[i] for i in sorted(chosen)], [classes[i] for i in sorted(chosen)]


def _keep_classes(texts: list[str], classes: list[str]) -> Texts:
    """Drop classes of fewer than 20 texts, which a sample has left without a shape."""
    names, counts = np.unique(classes, return_counts=True)
    kept = set(names[counts >= _MIN_CLASS])
    chosen = [i for i, name in enumerate(classes) if name in kept]
    return [texts[i] for i in chosen], [classes[i] for i in chosen]
