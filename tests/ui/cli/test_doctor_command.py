"""`prcut doctor`."""

import re
import sys

import pytest

import prcut.search
from prcut.ui.cli import doctor_command
from prcut.ui.cli.commands import main


def test_what_is_missing_is_said_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = doctor_command._version
    missing = {"onnx", "rich"}
    monkeypatch.setattr(
        doctor_command, "_version", lambda name: "missing" if name in missing else of(name)
    )
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
