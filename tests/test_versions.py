"""The deprecation policy of docs/versions.md: what a release promised still works."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import prcut
from public_api import broken, describe

ROOT = Path(__file__).parent.parent
RELEASES = sorted((ROOT / "tests/fixtures").glob("public_names_*.json"))
PAGE = (ROOT / "docs/versions.md").read_text("utf-8")


def removed() -> dict[str, tuple[Version, Version]]:
    """What the page says was removed, with the versions that deprecated and removed it."""
    rows = re.findall(r"^\| `([^`]+)` \| (\d\S*) \| (\d\S*) \|", PAGE, re.MULTILINE)
    return {name: (Version(first), Version(last)) for name, first, last in rows}


def test_what_a_release_promised_still_works() -> None:
    for release in RELEASES:  # none before the first is published
        found = list(broken(json.loads(release.read_text("utf-8")), describe()))
        assert [each for each in found if not any(name in each for name in removed())] == []


def test_what_was_removed_was_deprecated_for_two_minor_releases() -> None:
    for name, (first, last) in removed().items():
        assert last <= Version(prcut.__version__), name
        assert (last.major, last.minor) >= (
            first.major,
            first.minor + 2,
        ) or last.major > first.major


def changed(change: Any) -> list[str]:
    before = json.loads(json.dumps(describe()))  # as a release would keep it
    now = copy.deepcopy(before)
    change(now)
    return list(broken(before, now))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda now: now.pop("prcut.PRCut"), "prcut.PRCut is gone"),
        (lambda now: now.pop("$ prcut fit"), "$ prcut fit is gone"),
        (lambda now: now["$ prcut fit"]["options"].remove("-k"), "$ prcut fit -k is gone"),
        (
            lambda now: now["prcut.PRCut"]["members"].pop("predict"),
            "prcut.PRCut.predict is gone",
        ),
        (
            lambda now: now["prcut.PRCut"]["parameters"].pop(0),
            "prcut.PRCut(n_clusters=) is gone",
        ),
        (
            lambda now: now["prcut.PRCut"]["parameters"].insert(0, ["x", "KEYWORD_ONLY", True]),
            "prcut.PRCut(n_clusters) is no longer argument 1",
        ),
        (
            lambda now: now["prcut.PRCut"]["parameters"].append(["x", "KEYWORD_ONLY", False]),
            "prcut.PRCut asks for x, which is new",
        ),
        (
            lambda now: now["prcut.PRCut"]["parameters"][0].__setitem__(2, False),
            "prcut.PRCut(n_clusters=) must be given now",
        ),
    ],
)
def test_a_broken_promise_would_be_found(change: Any, said: str) -> None:
    assert changed(change) == [said]


def test_what_is_new_breaks_nothing() -> None:
    new: list[Any] = ["x", "KEYWORD_ONLY", True]
    assert changed(lambda now: now["prcut.PRCut"]["parameters"].append(new)) == []
    assert changed(lambda now: now.update({"prcut.new": {}})) == []
