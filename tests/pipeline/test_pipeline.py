"""The public face of the room: names that load their modules when they are first used."""

import subprocess
import sys

import pytest

import prcut
from prcut import pipeline


def test_public_names_are_there_and_no_others() -> None:
    for name in pipeline.__all__:
        assert getattr(pipeline, name).__name__ == name
    assert dir(pipeline) == sorted(pipeline.__all__)
    assert prcut.build_blocks.__name__ == "build_blocks"  # at the top, and only there
    with pytest.raises(AttributeError, match=r"'prcut\.pipeline' has no attribute 'absent'"):
        pipeline.absent  # noqa: B018


def test_the_face_loads_nothing() -> None:
    script = """
import sys
import prcut.pipeline
loaded = [m for m in ("torch", "numpy", "pyarrow", "sklearn", "scipy") if m in sys.modules]
sys.exit(f"loaded {loaded}" if loaded else 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
