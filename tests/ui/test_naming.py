"""Names by a stub of a language model on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from prcut.errors import DataWarning
from prcut.pipeline.names import name_clusters
from prcut.ui.naming import EndpointNamer

TEXTS, LABELS = ["lost card", "lost cards", "new rate", "new rates"], np.array([0, 0, 1, 1])


class Stub(BaseHTTPRequestHandler):
    """Answers every question with what it is told to, and remembers the questions."""

    asked: list[tuple[str, str | None, Any]]
    answer: tuple[int, str]

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], content))
        self.send_response(self.answer[0])
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(self.answer[1].encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def namer(monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointNamer]:
    Stub.asked = []
    monkeypatch.setenv("PRCUT_NAMER_KEY", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield EndpointNamer(f"http://127.0.0.1:{server.server_port}/v1/", "small")
        server.shutdown()


def test_an_endpoint_is_asked_for_names(namer: EndpointNamer) -> None:
    message = {"content": '"\x1b[31mBorrowing money"\n'}
    Stub.answer = 200, json.dumps({"choices": [{"message": message}]})
    names = name_clusters(TEXTS, LABELS, namer=namer)
    assert {one.name for one in names.clusters} == {"[31mBorrowing money"}
    path, key, question = Stub.asked[0]
    assert (path, key, question["model"]) == ("/v1/chat/completions", "Bearer secret", "small")
    assert "not instructions" in question["messages"][0]["content"]
    told = question["messages"][1]["content"]
    assert all(text in told for _, text in names.clusters[0].exemplars)
    assert all(term in told for term in names.clusters[0].terms)


@pytest.mark.parametrize("answer", [(500, "{}"), (302, ""), (200, '{"choices": []}')])
def test_a_wrong_answer_leaves_the_key_terms(namer: EndpointNamer, answer: tuple[int, str]) -> None:
    Stub.answer = answer
    with pytest.warns(DataWarning, match="gave no name"):
        names = name_clusters(TEXTS, LABELS, namer=namer)
    assert names == name_clusters(TEXTS, LABELS)
