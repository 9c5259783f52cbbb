"""The README as a stranger meets it: pasted into a fresh process, and rendered by an index."""

import re
from pathlib import Path

import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
# where files and pages of this repository are, for readers who are elsewhere
FILES = ("https://github.com/prcut/prcut/blob/main/", "https://github.com/prcut/prcut/tree/main/")
PICTURES, PAGES = (
    "https://raw.githubusercontent.com/prcut/prcut/main/",
    "https://prcut.readthedocs.io/",
)
BLOCKS = re.findall(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", README, re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_pasted_and_prints_what_is_said(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = BLOCKS[number]
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out == output
    assert not list(tmp_path.iterdir())


def test_the_home_page_shows_the_same_output() -> None:
    home = (ROOT / "docs/index.md").read_text("utf-8")
    assert f"```text\n{BLOCKS[0][1]}```" in home


def test_k_means_reaches_what_is_said_of_it() -> None:
    rows, digits = load_digits(return_X_y=True)
    found = KMeans(10, n_init=10, random_state=0).fit_predict(rows)
    assert f"k-means reaches {adjusted_rand_score(digits, found):.2f}." in README


def test_every_extra_of_a_user_has_its_row() -> None:
    """Read with a regular expression: tomllib came with Python 3.11."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == extras - {
        *("bench", "dev", "docs")
    }


def targets() -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", README)


def test_links_are_absolute_and_those_of_this_repository_exist() -> None:
    assert len(targets()) > 20
    for target in targets():
        assert target.startswith("https://"), target
        address, _, anchor = target.partition("#")
        path = None
        for start in (*FILES, PICTURES):
            if address.startswith(start):
                path = ROOT / address.removeprefix(start)
        if address.startswith(PAGES):
            page = address.removeprefix(PAGES).removesuffix(".html") or "index"
            path = ROOT / f"docs/{page}.md"
        if path is None:
            continue
        if path.name == "report.png" and not path.exists():
            pytest.skip("docs/report.png is not drawn yet")
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)", path.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", one).strip().lower() for one in titles}
            assert anchor in {one.replace(" ", "-") for one in slugs}, target
