"""The habits: layers, declared names, one version, cheap import, documents that tell the truth."""

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

# imports may only point to the same number or a smaller one
LAYERS = {
    # 0 numerics: tensors in, tensors out
    "errors": 0,
    "validation": 0,
    "sparse": 0,
    "cuts": 0,
    "objective": 0,
    "expectation": 0,
    "certificate": 0,
    # 1 structures
    "graph": 1,
    "assigner": 1,
    "level_assigner": 1,
    "processes": 1,
    "running_mass": 1,
    "loss": 1,
    # 2 building
    "neighbors": 2,
    "similarity": 2,
    "graph_features": 2,
    "cluster_cost": 2,
    "coarse_graph": 2,
    "fragments": 2,
    "merging": 2,
    "moves": 2,
    "refinement": 2,
    "partition": 2,
    "pairs": 2,
    "batches": 2,
    "progress": 2,
    "engine": 2,
    "read_ahead": 2,
    "downloads": 2,
    "datasets": 2,
    "memory": 2,
    "graph_folder": 2,
    "storage": 2,
    "cells": 2,
    "sources": 2,
    "row_contents": 2,
    "matching": 2,
    "projection": 2,
    "exchange": 2,
    "blocks": 2,
    "pair_shards": 2,
    # 3 training
    "train_state": 3,
    "checkpoint": 3,
    "training": 3,
    "assignment": 3,
    # 4 pipelines
    "fitting": 4,
    "model_folder": 4,
    "export": 4,
    "embedding": 4,
    "label_files": 4,
    "status": 4,
    "cluster": 4,
    "run_folder": 4,
    "runs": 4,
    "capacity": 4,
    "level_folder": 4,
    "levels": 4,
    "path_info": 4,
    "inspection": 4,
    "advice": 4,
    # 5 faces
    "display": 5,
    "notebook": 5,
    "plot": 5,
    "report": 5,
    "report_page": 5,
    "report_parts": 5,
    "report_comparison": 5,
    "cli_report": 5,
    "estimator": 5,
    "console": 5,
    "cli_options": 5,
    "cli_shared": 5,
    "cli": 5,
    "bench": 5,
    "__main__": 5,
}
# "graph", and "bench.runner" for those of the subpackage, whose layer is that of the whole
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if path.stem != "__init__"
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


def layer(module: str) -> int:
    return LAYERS[module.split(".", maxsplit=1)[0]]


def text(module: str) -> str:
    return (SOURCE / f"{module.replace('.', '/')}.py").read_text()


def upward_imports(module: str, source: str) -> list[str]:
    return [
        f"{module} (layer {layer(module)}) imports {name} (layer {LAYERS.get(name)})"
        for name in sorted(imports(ast.parse(source)))
        if name not in LAYERS or LAYERS[name] > layer(module)
    ]


def test_every_module_has_a_layer() -> None:
    assert sorted(LAYERS) == sorted({module.split(".", maxsplit=1)[0] for module in MODULES})


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    assert upward_imports(module, text(module)) == []


def test_an_upward_import_would_be_found() -> None:
    for line in (
        "from prcut.graph import SimilarityGraph",
        "import prcut.graph",
        "from prcut import graph",
        "def f():\n    from prcut import SimilarityGraph",
    ):
        assert upward_imports("cuts", line), line
    assert upward_imports("graph", "from prcut.cuts import ratio_cut") == []


@pytest.mark.parametrize("module", MODULES)
def test_numerics_keep_no_state(module: str) -> None:
    """No files, no global random state, no torch.distributed, no logging in layer 0."""
    source = text(module)
    assert "torch.manual_seed" not in source
    if layer(module) == 0:
        for word in ("distributed", "logging", "open(", "pathlib", "np.random.seed", "print("):
            assert word not in source, f"{module} uses {word}"


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_declared(module: str) -> None:
    tree = ast.parse(text(module))
    defined = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    public = {name for name in defined if not name.startswith("_")}
    assert public == set(importlib.import_module(f"prcut.{module}").__all__)


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
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "[]"]


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


def test_every_test_named_by_the_errata_exists() -> None:
    page = (ROOT / "docs/errata.md").read_text()
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", page)
    for file, function in named:
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(), function
    entries = re.findall(r"^\*\*(\d+)\. ", page, re.MULTILINE)
    assert entries == [str(i) for i in range(1, 17)]
    tests = re.findall(r"^def (test_\w+)\(", (ROOT / "tests/test_errata.py").read_text(), re.M)
    assert {function for file, function in named if file == "test_errata.py"} == set(tests)
