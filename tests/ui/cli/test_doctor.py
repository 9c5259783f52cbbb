"""`prcut doctor`."""

import re
import sys
from importlib import metadata

import pytest

import prcut.search
from prcut.ui.cli.commands import main


def test_what_is_missing_is_said_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"onnx", "rich"}
    installed = [one for one in metadata.distributions() if one.metadata["Name"] not in missing]
    monkeypatch.setattr(metadata, "distributions", lambda: iter(installed))
    monkeypatch.delattr(prcut.search, "kernels")
    monkeypatch.setitem(sys.modules, "prcut.search.kernels", None)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "lacks onnx" in text
    assert re.search(r"\nrich +missing", text)
    assert re.search(r"\nkernels +missing: .*prcut.search.kernels", text)
    extras = text.splitlines()[-1]
    assert extras.startswith("pip install 'prcut[")
    assert "onnx" in extras
