"""The documents run as pasted, every block and command; and what they say of the code is there."""

import importlib
import json
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

import prcut
import prcut.ui.cli.commands
from prcut.fit.config import _STARTS
from prcut.training.loop import train
from prcut.training.settings import TrainConfig
from prcut.training.state import TrainState

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "making"),
]
# a block with such a title, which readers see too, is not run here
_BLOCK = re.compile(r"^( *)```(python|console)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r'title="((?:needs|takes) \w.*)"')
# commands of a console block that belong to others
_OTHERS = ("pip", "ray", "make", "docker")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page that run here, each with its language.

    The README's Python runs in ``test_readme.py``, which compares what it prints.
    """
    return [
        (kind, re.sub(f"^{indent}", "", code, flags=re.MULTILINE))
        for indent, kind, title, code in _BLOCK.findall(page.read_text("utf-8"))
        if not _NOT_RUN.search(title) and (kind, page) != ("python", PAGES[0])
    ]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files of the names that the pages use."""
    rows = make_blobs(240, n_features=8, centers=10, random_state=0)[0].astype(np.float32)
    np.save(tmp_path / "embeddings.npy", rows)
    (tmp_path / "parts").mkdir()
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 8)
    texts = [f"row {number}" for number in range(len(rows))]
    table = pa.table({"id": np.arange(len(rows)), "text": texts, "embedding": values})
    pq.write_table(table, tmp_path / "embeddings.parquet")
    pq.write_table(table.slice(0, 50), tmp_path / "new.parquet")
    for number in range(2):
        pq.write_table(table.slice(120 * number, 120), tmp_path / f"parts/{number}.parquet")
    # that blocks run is tested here: one start, few steps and a rough map will do
    one_start = {solver: dict.fromkeys(efforts, 1) for solver, efforts in _STARTS.items()}
    monkeypatch.setattr("prcut.fit.config._STARTS", one_start)
    monkeypatch.setattr("prcut.fit.assign.train", _train_shortly)
    monkeypatch.setattr("prcut.ui.report.projection._FEWEST", 10**6)  # no t-SNE
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "svg")
    return tmp_path


def _train_shortly(pairs: Any, assigner: Any, config: TrainConfig, **options: Any) -> TrainState:
    config = replace(config, max_steps=min(config.max_steps, 20))
    return train(pairs, assigner, config, **options)


# the pages that fit or draw much
COSTLY = ("README", "1-texts", "2-images", "3-ten-million-rows", "choosing", "comparison")
COSTLY += ("confidence", "index", "inputs", "production", "report", "researchers", "updates")
costly = pytest.mark.costly("what a page shows must run as it is pasted")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[costly] * (page.stem in COSTLY))
        for page in PAGES
        if blocks(page)
    ],
)
@pytest.mark.usefixtures("workplace")
def test_blocks_run_as_pasted(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From the top, code and commands in their order, from an empty namespace.

    What a page does not define or write itself is one of the files of ``workplace``, which stand
    for the reader's own.
    """
    code = blocks(page)
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        if any("bertopic" in block for _, block in code):
            pytest.importorskip("bertopic", reason="needs bertopic")
            warnings.simplefilter("ignore")  # of its own dependencies
        for kind, block in code:
            if kind == "python":
                exec(compile(block, str(page), "exec"), names)  # noqa: S102
                continue
            for arguments in commands(page, block):
                status = prcut.ui.cli.commands.main(arguments)
                assert status == 0, f"prcut {shlex.join(arguments)}: {capfd.readouterr().err}"


def commands(page: Path, block: str) -> Iterator[list[str]]:
    for line in block.splitlines():
        assert line.startswith("$ "), f"{page.name}: {line!r} is neither command nor output"
        words = shlex.split(line[2:], comments=True)
        assert words[0] in ("prcut", *_OTHERS), line
        if words[0] == "prcut":
            yield words[1:]


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = [
        (page.name, found[1])
        for page in PAGES
        for _, _, title, _ in _BLOCK.findall(page.read_text("utf-8"))
        if title.strip() and (found := _NOT_RUN.search(title))
    ]
    assert len(reasons) == 8, reasons
    for page in PAGES:
        for _, _, title, _ in _BLOCK.findall(page.read_text("utf-8")):
            assert not title.strip() or _NOT_RUN.search(title), f"{page.name}: {title}"
        # no other fence, such as ```py or ```bash, that nobody would run
        fences = set(re.findall(r"^ *```(\w+)", page.read_text("utf-8"), re.MULTILINE))
        assert fences <= {"python", "console", "text"}, page


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        (page.name, file, function)
        for page in PAGES
        for file, function in re.findall(r"`(test_\w+\.py)::(\w+)`", page.read_text("utf-8"))
    }
    assert len(named) > 25
    for page, file, function in named:
        files = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(file)]
        assert any(f"def {function}(" in text for text in files), (page, function)


# -- what is made by docs/making -----------------------------------------------------------------


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs/making"))


@pytest.mark.usefixtures("making")
def test_the_readme_shows_the_committed_results() -> None:
    peers = importlib.import_module("peers")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert peers.peers_table() in readme, "run `make figures`"
    picture = (ROOT / "docs/peers.svg").read_text("utf-8")
    found = re.search(r"<dc:description>(.*?)</dc:description>", picture, re.DOTALL)
    assert found is not None
    drawn = json.loads(found[1].replace("&quot;", '"'))
    expected = {
        dataset: {method: list(point) for method, point in points.items()}
        for dataset, points in peers.peer_points().items()
    }
    assert drawn == expected, "run `make figures`"


def test_accuracies_in_the_text_are_those_of_the_results() -> None:
    """Numbers such as .965; pages that cite other sources, or derive, are left out."""
    results = "\n".join(
        path.read_text("utf-8") for path in (ROOT / "benchmarks/results").glob("*.md")
    )
    cites = {"benchmarks.md", "reliability.md", "research-log.md", "researchers.md"}
    quoted = [
        (page.name, number)
        for page in PAGES
        if page.name not in cites
        for number in re.findall(r"(?<![\d\w])0?(\.\d{3})(?!\d)", page.read_text("utf-8"))
    ]
    assert len(quoted) > 60
    assert [number for number in quoted if f"0{number[1]}" not in results] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnot_in_nav:")[2]
    for page in PAGES[1:]:
        name = page.relative_to(ROOT / "docs").as_posix()
        assert re.search(rf"[ \[]{re.escape(name)}\b", navigation), name


def test_the_walks_through_the_files_name_what_is_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    steps = re.findall(r"^\| `([\w/]+\.py)` \| (.*?) \| ", page, re.MULTILINE)
    assert len(steps) > 20
    for file, functions in steps:
        text = (ROOT / "src/prcut" / file).read_text("utf-8")
        for name in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^(def|class) {name}\b", text, re.MULTILINE), (file, name)
