"""What tests of reports share: hostile texts, made-up inspections, and a reader of pages."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np

from prcut.runtime.sources import ArraySource
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.page import load_script

EVIL = '<script>alert("1")</script><img src=http://evil.example/x onerror=alert(2)> & "quoted"'
EVEN = np.arange(400) % 4


def made_up(labels: np.ndarray, n_clusters: int, **options: Any) -> Inspection:
    """An inspection of rows that are not there."""
    n = len(labels)
    fields: dict[str, Any] = {
        "name": "run",
        "source": ArraySource(np.zeros((n, 2))),
        "about": {},
        "rows": np.arange(n),
        "labels": labels,
        "runner_up": np.full(n, -1),
        "confidence": np.full(n, 0.99, np.float32),
        "coords": np.zeros((n, 2)),
        "distances": np.zeros(n),
        "n_clusters": n_clusters,
    }
    return Inspection(**(fields | options))


class Elements(HTMLParser):
    """Tags with their attributes, and the text of the page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def check_self_contained(content: str) -> Elements:
    """No script but the package's own, nothing fetched, ids once, links that lead somewhere."""
    found = Elements(content)
    scripts = [given.get("type") for tag, given in found.tags if tag == "script"]
    policy = next(given for _, given in found.tags if given.get("http-equiv"))["content"] or ""
    # what runs is the file of the package, to the byte, and the browser is told its hash
    assert scripts == ["application/json", None]
    ours = load_script("explorer.js")
    assert content.count(f"<script>{ours['script']}</script>") == 1
    assert f"script-src '{ours['script_hash']}'" in policy
    assert policy.startswith("default-src 'none'")
    ids = [given["id"] for _, given in found.tags if "id" in given]
    assert len(ids) == len(set(ids))
    for tag, given in found.tags:
        assert tag not in ("iframe", "object", "embed", "base", "form"), tag
        assert not [name for name in given if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            if value := given.get(name):
                assert value.startswith(("data:", "#")), (tag, value)
                assert not value.startswith("#") or value[1:] in ids, value
    assert not re.search(r"@import|url\((?!#)", content)
    assert found.count("img") == sum("alt" in given for tag, given in found.tags if tag == "img")
    assert len(content) < 5_000_000
    return found
