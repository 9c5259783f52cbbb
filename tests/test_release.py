"""What publishes a release: workflows, image, recipe and templates agree with the package."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import prcut

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11, to read pyproject.toml")

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


# -- workflows -----------------------------------------------------------------------------------


def test_the_linter_finds_nothing_in_the_workflows() -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or shutil.which("zizmor")
    if zizmor is None:
        pytest.skip("zizmor is not installed: workflows are not linted")
    command = [zizmor, "--offline", "--no-progress", "--persona=pedantic", str(ROOT / ".github")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_files_and_targets_that_a_workflow_names_exist(path: Path) -> None:
    jobs = load(path)["jobs"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for job in jobs.values():
        # the weekly tier takes about an hour, and a public runner may be slower
        assert job["timeout-minutes"] <= (180 if path.stem == "weekly" else 60)
        for step in job["steps"]:
            command = step.get("run", "")
            for file in re.findall(r"[\w./]*(?:benchmarks|\.ci)/\w+\.py", command):
                assert (ROOT / file).exists(), file
            for targets in re.findall(r"\bmake ([a-z ]+)", command):
                for target in targets.split():
                    assert re.search(rf"^{target}\b.*:", makefile, re.M), target


def test_a_release_waits_for_all_that_is_tested_and_counts_its_files() -> None:
    jobs = load(ROOT / ".github/workflows/release.yml")["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    n_files = len(jobs["wheels"]["strategy"]["matrix"]["os"]) + 1
    checked = next(step["run"] for step in jobs["publish"]["steps"] if "run" in step)
    assert checked.count(f"= {n_files}") == 2
    assert "smoke.py" in PROJECT["tool"]["cibuildwheel"]["test-command"]


# -- the package, the image, the recipe ----------------------------------------------------------


def recipe() -> dict[str, Any]:
    text = (ROOT / "recipe/meta.yaml").read_text("utf-8")
    values = dict(re.findall(r'{% set (\w+) = "([^"]+)" %}', text))
    text = re.sub(r"{%.*?%}", "", text)
    text = re.sub(r"{{ (name|version) }}", lambda found: values[found[1]], text)
    found: dict[str, Any] = yaml.safe_load(re.sub(r"{{ .*? }}", "X", text))
    return found


def test_the_recipe_has_the_version_and_dependencies_of_the_package() -> None:
    made = recipe()
    assert str(made["package"]["version"]) == prcut.__version__
    assert f"prcut-{prcut.__version__}.tar.gz" in made["source"]["url"]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # as conda-forge calls them
    expected = {"python": PROJECT["project"]["requires-python"]}
    for line in PROJECT["project"]["dependencies"]:
        needed = Requirement(line)
        expected[names.get(needed.name, needed.name)] = str(needed.specifier)
    assert dict(line.split(" ") for line in made["requirements"]["run"]) == expected
    assert set(PROJECT["build-system"]["requires"]) <= {
        line.replace(" ", "") for line in made["requirements"]["host"]
    }
    script = PROJECT["project"]["scripts"]["prcut"]
    assert made["build"]["entry_points"] == [f"prcut = {script}"]


def test_a_build_without_a_compiler_fails_and_says_who_needs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # hatchling is there only while the package is built
    plugin = ModuleType("hatchling.builders.hooks.plugin.interface")
    plugin.BuildHookInterface = object  # type: ignore[attr-defined]
    parts = plugin.__name__.split(".")
    for n in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:n]), plugin)
    compile_library = runpy.run_path(str(ROOT / "hatch_build.py"))["compile_library"]
    for compiler in ("no-such-compiler", f"'{sys.executable}'"):
        monkeypatch.setenv("CC", compiler)
        with pytest.raises(RuntimeError, match=r"an sdist, needs a C compiler.* Wheels need none"):
            compile_library(tmp_path)
