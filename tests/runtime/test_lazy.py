import subprocess
import sys

import pytest

from prcut.runtime.lazy import import_lazily


def test_a_name_is_imported_from_its_home() -> None:
    get, list_names = import_lazily("email", {"Message": "message", "Missing": "message"})
    from email.message import Message

    assert get("Message") is Message
    assert list_names() == ["Message", "Missing"]
    with pytest.raises(AttributeError, match="module 'email' has no attribute 'absent'"):
        get("absent")


def test_faces_load_no_room() -> None:
    script = """
import sys, prcut, prcut.runtime, prcut.training, prcut.fit, prcut.runs, prcut.curate, prcut.ui
print([m for m in ("torch", "numpy", "pyarrow", "scipy", "typer") if m in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
