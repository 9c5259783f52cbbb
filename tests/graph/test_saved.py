"""Graphs on disk: the same graph back, and worded errors for what is not one."""

import json
from pathlib import Path

import numpy as np
import pytest

from prcut import SimilarityGraph, build_graph
from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.similarity_graph import load_graph, save_graph


@pytest.fixture
def graph() -> SimilarityGraph:
    return build_graph(np.random.default_rng(0).normal(size=(200, 3)), 10)


def test_a_graph_comes_back_mapped(tmp_path: Path, graph: SimilarityGraph) -> None:
    save_graph(tmp_path, graph, {"key": "abc"})
    loaded = load_graph(tmp_path)
    assert (loaded.weight.to_dense() == graph.weight.to_dense()).all()
    assert loaded.n_edges == graph.n_edges
    assert json.loads((tmp_path / "graph.json").read_text())["key"] == "abc"


def test_what_is_not_a_whole_graph_is_refused(tmp_path: Path, graph: SimilarityGraph) -> None:
    with pytest.raises(InvalidInputError, match="holds no finished graph"):
        load_graph(tmp_path)
    save_graph(tmp_path, graph)
    values = (tmp_path / "values.npy").read_bytes()
    (tmp_path / "values.npy").write_bytes(values[:-4])
    with pytest.raises(CorruptFileError, match=r"values.npy has .* bytes, its record says"):
        load_graph(tmp_path)
    (tmp_path / "values.npy").write_bytes(values[:-1] + b"\x00")
    with pytest.raises(CorruptFileError, match="does not match the checksum"):
        load_graph(tmp_path)
    save_graph(tmp_path, SimilarityGraph.from_neighbors([[1], [0]]))
    record = json.loads((tmp_path / "graph.json").read_text())
    for change, error, message in (
        ({"format": 9}, InvalidInputError, "format 9, this version reads up to 1; upgrade"),
        ({"format": None}, CorruptFileError, "graph.json is altered or forged"),
        ({"n_samples": 7}, CorruptFileError, "do not form a graph"),
    ):
        (tmp_path / "graph.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(error, match=message):
            load_graph(tmp_path)
