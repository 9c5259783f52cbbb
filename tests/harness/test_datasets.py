"""Data sets of the harness: unknown ones are refused, and downloads are pinned."""

import re

import pytest
from benchmarks.harness import datasets
from benchmarks.harness.datasets import load_dataset

from prcut.errors import InvalidInputError


def test_unknown_names_and_splits_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="name='minst' is no data set; choose from mnist,"):
        load_dataset("minst")
    with pytest.raises(InvalidInputError, match="split='val' of mnist does not exist; choose from"):
        load_dataset("mnist", "val")


def test_table_of_downloads_is_sound() -> None:
    lines = datasets._REGISTRY.read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    published: dict[str, set[str]] = {}
    for file, digest, url in rows:
        name, _, short_name = file.partition("/")
        published.setdefault(name, set()).add(short_name)
        assert url.startswith("https://")
        assert re.fullmatch("md5:[0-9a-f]{32}" if name == "usps" else "[0-9a-f]{64}", digest)
        if "githubusercontent" in url:
            assert re.search("/[0-9a-f]{40}/", url), "a branch may change, a commit not"
    for name, files in published.items():
        assert any(set(form.files) == files for form in datasets._FORMS[name])
