"""Names of a run, by a stub of a language model on loopback, and contact sheets."""

import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut.errors import DataWarning, InvalidInputError, PRCutError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.names import name_clusters, read_names
from prcut.pipeline.run import fit_run
from prcut.ui.naming import EndpointNamer, name_run

WORDS = ["bank loan", "garden soil", "guitar song"]


class Stub(ThreadingHTTPServer):
    """Answers every question with what it is told to, and remembers the questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status, self.answer, self.delay = 200, b"", 0.0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                content = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.asked.append((handler.path, dict(handler.headers), json.loads(content)))
                time.sleep(self.delay)
                handler.send_response(self.status)
                handler.send_header("Location", "http://127.0.0.1:1/elsewhere")
                handler.end_headers()
                handler.wfile.write(self.answer)

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/"

    def say(self, content: Any) -> None:
        self.answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three far groups of rows with texts about three things, and images."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    labels = np.arange(150) % 3
    rows = (20 * np.eye(3, 4)[labels] + rng.normal(size=(150, 4))).astype(np.float32)
    texts = [f"{WORDS[label]} {'abcdefghij'[i % 10]}z" for i, label in enumerate(labels)]
    table = {"body": texts, "e": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=40)
    (folder / "texts.csv").write_text("body,more\n" + "".join(f'"{t}",1\n' for t in texts), "utf-8")
    np.save(folder / "images.npy", (40 * labels[:, None, None] * np.ones((1, 6, 8))).astype("u1"))
    return folder


CONFIG = FitConfig.of("default", 3, n_neighbors=8, max_steps=30, n_init=1)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("runs") / "run")
    fit_run(f"{data}/rows.parquet", path, CONFIG, device="cpu")
    return path


def _first_words(names: Any) -> list[str]:
    return sorted(one.name.split(",")[0].split()[0] for one in names)


def test_texts_may_be_a_column_or_a_file(data: Path, run: str) -> None:
    names = name_run(run, texts="body")
    assert read_names(run) == names
    assert _first_words(names.clusters) == ["bank", "garden", "guitar"]
    for one in names.clusters:
        assert {row % 3 for row, _ in one.exemplars} == {one.exemplars[0].row % 3}
        assert all(WORDS[row % 3] in text for row, text in one.exemplars)
    for file in ("rows.parquet", "texts.csv"):
        assert name_run(run, texts=f"{data}/{file}", text_column="body") == names
    with pytest.raises(InvalidInputError, match=r"'title' must be a column of .*: body, more"):
        name_run(run, texts=f"{data}/texts.csv", text_column="title")
    with pytest.raises(InvalidInputError, match="pass --texts or --images"):
        name_run(run)


def test_contact_sheets_show_images_of_one_cluster(data: Path, run: str) -> None:
    from PIL import Image

    names = name_run(run, images=f"{data}/images.npy")
    assert [one.name for one in names.clusters] == ["cluster 0", "cluster 1", "cluster 2"]
    shades = set()
    for number, one in enumerate(names.clusters):
        content = Path(run, f"sheets/cluster-{number:05d}.png").read_bytes()
        sheet = np.asarray(Image.open(io.BytesIO(content)))
        assert sheet.shape == (288, 288, 3)
        assert set(np.unique(sheet)) == {40 * (one.exemplars[0].row % 3), 255}
        shades.add(int(sheet.min()))
    assert shades == {0, 40, 80}


def test_an_endpoint_is_asked_for_names(
    stub: Stub, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRCUT_NAMER_KEY", "secret")
    stub.say('"\x1b[31mBorrowing money"\n')
    names = name_run(run, texts="body", namer=EndpointNamer(stub.url, "small"))
    assert {one.name for one in names.clusters} == {"[31mBorrowing money"}
    path, headers, question = stub.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert question["model"] == "small"
    assert "not instructions" in question["messages"][0]["content"]
    told = question["messages"][1]["content"]
    assert all(text in told for _, text in names.clusters[0].exemplars)
    assert all(term in told for term in names.clusters[0].terms)


@pytest.mark.parametrize(
    ("status", "answer"),
    [(500, b"{}"), (302, b""), (200, b'{"choices": []}')],
)
def test_a_wrong_answer_leaves_the_key_terms(stub: Stub, status: int, answer: bytes) -> None:
    stub.status, stub.answer = status, answer
    texts, labels = ["lost card", "lost cards", "new rate", "new rates"], np.array([0, 0, 1, 1])
    with pytest.warns(DataWarning, match="gave no name"):
        names = name_clusters(texts, labels, namer=EndpointNamer(stub.url, "small"))
    assert names == name_clusters(texts, labels)


def test_an_endpoint_that_is_silent_or_absent_is_not_waited_for(stub: Stub) -> None:
    stub.delay = 0.5
    with pytest.raises(PRCutError, match=r"gave no name: .*timed out"):
        EndpointNamer(stub.url, "small", timeout=0.05)(["term"], [])
    with pytest.raises(PRCutError, match="gave no name"):
        EndpointNamer("http://127.0.0.1:1/v1", "small")(["term"], [])
    with pytest.raises(InvalidInputError, match="must start with http"):
        EndpointNamer("file:///etc/passwd", "small")
