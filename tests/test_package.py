"""The habits: rooms, declared names, one version, cheap import, documents that are true."""

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from packaging.version import Version

import prcut

ROOT = Path(__file__).parent.parent
SOURCE = Path(prcut.__file__).parent

# imports point to the same room or to one on its left
ROOMS = (
    "errors",
    "numerics",
    "runtime",
    "graph",
    "search",
    "training",
    "fit",
    "runs",
    "curate",
    "ui",
    "estimator",
)
# dotted, as in "graph.neighbors"; __init__ of a room is its public face and has tests of its own
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if path.stem not in ("__init__", "__main__")
)


def imports(tree: ast.AST) -> set[str]:
    """prcut modules that a syntax tree imports, at any depth."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("prcut.")}
    return found


def room(module: str) -> int:
    return ROOMS.index(module.split(".", maxsplit=1)[0])


def text(module: str) -> str:
    return (SOURCE / f"{module.replace('.', '/')}.py").read_text()


def imports_from_the_right(module: str, source: str) -> list[str]:
    return [
        f"{module} imports {name}"
        for name in sorted(imports(ast.parse(source)))
        if name not in ROOMS or ROOMS.index(name) > room(module)
    ]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_left(module: str) -> None:
    assert imports_from_the_right(module, text(module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_numerics_keep_no_state(module: str) -> None:
    """No files, no global random state, no torch.distributed, no logging in numerics."""
    source = text(module)
    assert "torch.manual_seed" not in source
    if module.startswith("numerics."):
        for word in ("distributed", "logging", "open(", "pathlib", "np.random.seed", "print("):
            assert word not in source, f"{module} uses {word}"


FACES = ("numerics", "runtime", "graph", "search", "training", "fit", "runs", "curate", "ui")


def test_only_the_rooms_declare_public_names() -> None:
    """A module has no ``__all__``: what its room does not name is private."""
    assert [module for module in MODULES if "\n__all__ = " in text(module)] == []
    names = [name for room in FACES for name in importlib.import_module(f"prcut.{room}").__all__]
    assert len(names) <= 50
    names += prcut.__all__
    assert sorted(names) == sorted(set(names)), "a public name has one address"
    for room in FACES:
        face = importlib.import_module(f"prcut.{room}")
        for name in face.__all__:
            assert getattr(face, name) is not None


def test_top_level_names_are_declared_once_and_few() -> None:
    assert len(prcut.__all__) <= 16  # 15 and the version
    assert dir(prcut) == sorted(prcut.__all__)
    for name in prcut.__all__:
        assert getattr(prcut, name) is not None
    for_type_checkers = {
        alias.asname
        for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("prcut.")
        for alias in node.names
        if alias.asname
    }
    assert for_type_checkers == set(prcut.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="module 'prcut' has no attribute 'PRcut'"):
        _ = prcut.PRcut


def test_changelog_citation_and_version_agree() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == prcut.__version__
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == prcut.__version__
    assert importlib.metadata.version("prcut") == prcut.__version__


HEAVY = ["faiss", "matplotlib", "pandas", "pyarrow", "ray", "rich", "scipy", "sklearn", "typer"]


@pytest.mark.costly("a new interpreter that imports everything: the first second of every user")
def test_import_costs_nothing_and_torch_is_the_only_slow_part() -> None:
    script = f"""
import sys, prcut
assert "torch" not in sys.modules, "import prcut alone loads torch"
for name in prcut.__all__:
    name == "PRCut" or getattr(prcut, name)
print([m for m in {HEAVY} if m in sys.modules])
import sklearn.base  # which loads pandas where it is installed
before = set(sys.modules)
prcut.PRCut
print([m for m in {HEAVY} if m in set(sys.modules) - before])
import prcut.ui.report.report
[getattr(prcut.ui, name) for name in prcut.ui.__all__]
print([m for m in ("matplotlib", "jinja2") if m in sys.modules])  # only drawing loads them
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "[]", "[]"]


def test_cpu_install_pulled_no_cuda() -> None:
    if not os.environ.get("PRCUT_CPU_ONLY"):
        pytest.skip("PRCUT_CPU_ONLY is not set: a CUDA build of torch is allowed here")
    names = {str(d.metadata["Name"]).lower() for d in importlib.metadata.distributions()}
    assert [n for n in sorted(names) if n.startswith("nvidia-") or n == "triton"] == []
    assert torch.version.cuda is None


def test_ci_tries_the_lowest_versions_that_are_allowed() -> None:
    lines = (ROOT / ".ci/oldest.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    tried["typer"] = tried.pop("typer-slim")
    bounds = importlib.metadata.requires("prcut") or []
    lowest = dict(bound.split(";")[0].split(">=") for bound in bounds if ">=" in bound)
    needed = {bound.split(">=")[0] for bound in bounds if "extra" not in bound} - {"torch"}
    assert needed <= tried.keys()
    for name, version in tried.items():
        assert Version(version) == Version(lowest[name].strip()), name
