"""The script that measures the shape of the source finds a violation of every kind."""

from pathlib import Path

import pytest
from benchmarks import house

# a small package that keeps every limit
FILES = {
    "src/prcut/__init__.py": '_HOME = {"PRCut": "estimator"}\n__all__ = ["__version__", *_HOME]\n',
    "src/prcut/__main__.py": "import prcut.ui.face\n",
    "src/prcut/py.typed": "",
    "src/prcut/errors.py": "class PRCutError(Exception):\n    pass\n",
    "src/prcut/graph/__init__.py": '_HOME = {"build": "rows"}\n__all__ = list(_HOME)\n',
    "src/prcut/graph/rows.py": "from prcut import __version__\nimport prcut.errors\n",
    "src/prcut/fit/__init__.py": '__all__ = ["fit_rows"]\n',
    "src/prcut/fit/fit.py": "def fit_rows(rows):\n    from prcut.graph import build\n",
    "src/prcut/ui/__init__.py": '__all__: list[str] = []\nEXTRA = ["x"]\n',
    "src/prcut/ui/face.py": "from prcut.fit.fit import fit_rows\n",
    "src/prcut/estimator.py": "from prcut.fit.fit import fit_rows\n",
    "tests/test_errors.py": "",
    "tests/test_estimator.py": "",
    "tests/graph/test_rows.py": "",
    "tests/fit/test_fit.py": "",
    "tests/ui/test_face.py": "",
}


def make(root: Path, changes: dict[str, str | None]) -> list[house.Figure]:
    for name, content in {**FILES, **changes}.items():
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
    return house.measure(root)


def test_a_package_within_the_limits_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {figure.name: figure for figure in make(tmp_path, {})}
    assert not any(figure.is_short for figure in figures.values()), figures
    assert house.main(["--quick", "--root", str(tmp_path)]) == 0
    assert "holds: " in capsys.readouterr().out


VIOLATIONS: list[tuple[str, str, dict[str, str | None]]] = [
    (
        "cycles of files",
        "graph.rows ⇄ graph.smooth",
        {
            "src/prcut/graph/rows.py": "from prcut.graph.smooth import smooth\n",
            "src/prcut/graph/smooth.py": "def f():\n    import prcut.graph.rows\n",
        },
    ),
    (
        "fraction of modules with a test file of their own",
        "without: graph/smooth.py",
        {"src/prcut/graph/smooth.py": ""},
    ),
]


@pytest.mark.parametrize(("name", "detail", "changes"), VIOLATIONS)
def test_a_violation_is_reported(
    tmp_path: Path, name: str, detail: str, changes: dict[str, str | None]
) -> None:
    figures = {figure.name: figure for figure in make(tmp_path, changes)}
    assert figures[name].is_short, figures[name]
    assert detail in "\n".join(figures[name].details)
    assert house.main(["--quick", "--root", str(tmp_path)]) == 1
