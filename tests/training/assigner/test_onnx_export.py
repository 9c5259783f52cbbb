import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prcut.errors import InvalidInputError, PRCutError
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.onnx_export import export_onnx

SHAPES: dict[str, dict[str, Any]] = {
    "linear": {},
    "deep": {"hidden": (32, 16)},
    "bottleneck": {"hidden": (32,), "bottleneck": 4},
    "linear bottleneck": {"bottleneck": 4},
}


def trained(standardized: bool = False, **options: Any) -> Assigner:
    """An assigner whose weights are not those of the start, in every part."""
    generator = torch.Generator().manual_seed(1)
    assigner = Assigner(20, 7, **options, generator=generator)
    with torch.no_grad():
        for parameter in assigner.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    if standardized:
        assigner.standardize(torch.randn(20, generator=generator), 2.5)
    return assigner.eval()


def run(path: Path, features: np.ndarray) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs what was exported")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("features", "tensor(float)", ["batch", 20])
    ]
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [
        ("probs", "tensor(float)", ["batch", 7]),
        ("labels", "tensor(int64)", ["batch"]),
    ]
    outputs: list[np.ndarray] = session.run(None, {"features": features})
    return outputs


@pytest.fixture
def onnx() -> Any:
    return pytest.importorskip("onnx", reason="writes the file")


@pytest.mark.parametrize("standardized", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_says_what_the_assigner_says(
    onnx: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    shape: str,
    standardized: bool,
) -> None:
    assigner = trained(standardized, **SHAPES[shape])
    path = tmp_path / "model.onnx"
    export_onnx(path, assigner)
    assert capfd.readouterr() == ("", "")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    for n_rows in (1, 1000, 0):
        features = torch.randn(n_rows, 20, generator=torch.Generator().manual_seed(n_rows))
        probs, labels = run(path, features.numpy())
        with torch.no_grad():
            expected = assigner.probs(features)
        np.testing.assert_allclose(probs, expected.numpy(), atol=1e-5, rtol=0)
        assert labels.dtype == np.int64
        assert labels.tolist() == expected.argmax(1).tolist()


def test_what_no_onnx_file_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prcut.training.assigner.onnx_export._MAX_BYTES", 1000)
    with pytest.raises(InvalidInputError, match=r"holds at most 1,000; use save_model instead"):
        export_onnx(tmp_path / "model.onnx", trained())


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[onnx\]'"):
        export_onnx(tmp_path / "model.onnx", trained())
