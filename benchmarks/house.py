"""The shape of the source: rooms, imports, sizes, walks, tests and public names, against limits.

    python benchmarks/house.py             # about half a minute, where prcut is installed
    python benchmarks/house.py --quick     # without walks and names: a second, nothing but Python

The source is read with `ast`. The walks are counted while a fit runs: the files whose functions are
called between `PRCut(10).fit(X)` and its labels, and between a Parquet file and the labels beside
it. Each figure is printed with its goal. Where a goal is not reached yet, `NOW` has the figure that
must not grow; it is only ever lowered.
"""

import argparse
import ast
import graphlib
import importlib
import pkgutil
import sys
import tempfile
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
# lines of Python at most; imports point to the same room or to one above it
ROOMS = {
    "errors": 60,
    "numerics": 900,
    "runtime": 1900,
    "graph": 2200,
    "search": 2600,
    "training": 2200,
    "fit": 2000,
    "runs": 1100,
    "curate": 1100,
    "ui": 2100,
    "estimator": 500,
}
NOT_ENTRIES = {"__init__", "__main__", "__pycache__", "py.typed"}
# what CI accepts until the goal is reached
NOW: dict[str, float] = {
    "lines of Python in the package": 19910,
    "lines of numerics": 958,
    "lines of graph": 2329,
    "lines of search": 2794,
    "lines of training": 2386,
    "lines of fit": 2431,
    "lines of runs": 1621,
    "lines of curate": 1640,
    "lines of ui": 3117,
    "lines of estimator": 694,
    "lines of tests a line of the package": 0.785,
    "lines of benchmarks": 9554,
    "files that X of PRCut(10).fit(X) walks through": 32,
    "files that a Parquet row walks through": 48,
}


class Figure(NamedTuple):
    """One measured number, the bound it must keep, and what explains it."""

    name: str
    value: float
    bound: str
    """``"<= 9"`` or ``">= 0.9"``."""
    details: tuple[str, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether the bound is broken."""
        sign, _, limit = self.bound.partition(" ")
        return self.value > float(limit) if sign == "<=" else self.value < float(limit)

    @property
    def has_grown(self) -> bool:
        """Whether it is short, and beyond what is accepted for now."""
        return self.is_short and not self.value <= NOW.get(self.name, -1)


def main(arguments: list[str] | None = None) -> int:
    """Print every figure with its limit; return 1 where one has grown beyond what is accepted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="without walks and names")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to measure")
    given = parser.parse_args(arguments)
    figures = measure(given.root)
    if not given.quick and find_spec("prcut"):
        figures += [*public_names(), *walks()]
    else:
        print("walks and public names are not counted")
    for figure in figures:
        verdict = "SHORT" if figure.is_short else "ok"
        print(f"{verdict:5}  {figure.name:52} {figure.value:>9,.6g}  {figure.bound}")
        for line in figure.details:
            print(f"         {line}")
    short = [figure.name for figure in figures if figure.is_short]
    print("\n" + ("\n".join(["short:", *short]) if short else "holds: the house keeps its limits"))
    grown = [figure.name for figure in figures if figure.has_grown]
    if grown:
        print("\n".join(["beyond what is accepted for now:", *grown]))
    return 1 if grown else 0


def measure(root: Path) -> list[Figure]:
    """Return all figures of a checkout that need not run it."""
    source = root / "src/prcut"
    trees = {
        _module(path, source): ast.parse(path.read_text("utf-8"), str(path))
        for path in sorted(source.rglob("*.py"))
    }
    return [
        _cycles(trees),
        *_size_figures(root),
        _mirrored(source, root / "tests"),
    ]


def _module(path: Path, source: Path) -> str:
    """Return ``"graph.build"``; a package is ``"graph.__init__"``."""
    return ".".join(path.relative_to(source).with_suffix("").parts)


# -- imports; that they point left is a test's ----------------------------------------------------


def _cycles(trees: dict[str, ast.Module]) -> Figure:
    """Look for files that import each other, however indirectly."""
    edges: dict[str, set[str]] = {}
    for module, tree in trees.items():
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        found = set()
        for name in (name.removeprefix("prcut.") for name in names):
            parent = name.rpartition(".")[0]
            # a name may be that of a module, or be taken from one
            files = (name, f"{name}.__init__", parent, f"{parent}.__init__")
            found |= {*[file for file in files if file in trees][:1]}
        edges[module] = found - {module}
    try:
        graphlib.TopologicalSorter(edges).prepare()
        cycle = ()
    except graphlib.CycleError as error:
        cycle = (" ⇄ ".join(sorted(set(error.args[1]))),)
    return Figure("cycles of files", len(cycle), "<= 0", cycle)


# -- sizes ---------------------------------------------------------------------------------------


def _size_figures(root: Path) -> Iterator[Figure]:
    source = root / "src/prcut"
    total = _lines(source)
    yield Figure("lines of Python in the package", total, "<= 16000")
    for room, most in ROOMS.items():
        path = source / room
        count = _lines(path) if path.is_dir() else _lines(path.with_suffix(".py"))
        yield Figure(f"lines of {room}", count, f"<= {most}")
    entries = {path.stem for path in source.iterdir() if path.suffix in ("", ".py")}
    strangers = entries - {*ROOMS, *NOT_ENTRIES}
    yield Figure("entries that are no room", len(strangers), "<= 0", (_joined(strangers),))
    tests, benchmarks = _lines(root / "tests"), _lines(root / "benchmarks")
    yield Figure("lines of tests a line of the package", round(tests / total, 3), "<= 0.7")
    yield Figure("lines of benchmarks", benchmarks, "<= 9000")


def _lines(path: Path) -> int:
    files = path.rglob("*.py") if path.is_dir() else [path] if path.exists() else []
    return sum(len(file.read_bytes().splitlines()) for file in files)


# -- walks ---------------------------------------------------------------------------------------


def walks() -> list[Figure]:
    """Return how many files of the package rows walk through, in memory and from Parquet."""
    return [
        _walk_figure("files that X of PRCut(10).fit(X) walks through", 20, _fit_in_memory),
        _walk_figure("files that a Parquet row walks through", 30, _fit_parquet),
    ]


def _fit_in_memory() -> Callable[[], Any]:
    from sklearn.datasets import load_digits

    from prcut import PRCut

    rows = load_digits().data
    return lambda: PRCut(10, random_state=0).fit(rows)


def _fit_parquet() -> Callable[[], Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.datasets import load_digits

    from prcut.fit import FitConfig
    from prcut.runs import assign_parquet, fit_run
    from prcut.training.assigner.saved import load_model

    folder = Path(tempfile.mkdtemp())
    rows, run = folder / "rows.parquet", folder / "run"
    vectors = pa.array(list(load_digits().data.astype("float32")), pa.list_(pa.float32()))
    pq.write_table(pa.table({"vector": vectors}), rows)

    def walk() -> None:
        # too little memory for the rows, so that blocks are built
        fit_run(rows, run, FitConfig.of("default", 10), memory=10**5, device="cpu")
        assign_parquet(load_model(run / "model").assigner, rows, folder / "labels", device="cpu")

    return walk


def _walk_figure(name: str, most: int, prepare: Callable[[], Callable[[], Any]]) -> Figure:
    """Count the files whose functions are called."""
    import prcut

    source = str(Path(prcut.__file__).parent)
    called: dict[str, set[str]] = defaultdict(set)

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(source) and code.co_name != "<module>":
            called[code.co_filename[len(source) + 1 :]].add(code.co_name)

    work = prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    functions = sum(map(len, called.values()))
    return Figure(name, len(called), f"<= {most}", (f"{functions} functions", _joined(called)))


# -- tests and names -----------------------------------------------------------------------------


def _mirrored(source: Path, tests: Path) -> Figure:
    """``a/b.py`` is tested by ``tests/a/test_b.py``."""
    modules = [path.relative_to(source) for path in sorted(source.rglob("*.py"))]
    modules = [path for path in modules if path.stem not in NOT_ENTRIES]
    without = [
        path.as_posix()
        for path in modules
        if not (tests / path.parent / f"test_{path.stem.lstrip('_')}.py").exists()
    ]
    fraction = 1 - len(without) / len(modules) if modules else 1.0
    details = (f"without: {_joined(without)}",) if without else ()
    return Figure("fraction of modules with a test file of their own", fraction, ">= 0.9", details)


def public_names() -> list[Figure]:
    """Return how many names prcut and its rooms declare public."""
    import prcut

    top = set(prcut.__all__) - {"__version__"}
    rooms = {
        found.name: set(getattr(importlib.import_module(found.name), "__all__", ()))
        for found in pkgutil.walk_packages(prcut.__path__, "prcut.")
        if found.ispkg
    }
    details = tuple(f"{room}: {_joined(names)}" for room, names in rooms.items() if names)
    return [
        Figure("public names at the top", len(top), "<= 15", (_joined(top),)),
        Figure("public names of the rooms", len(set().union(*rooms.values())), "<= 50", details),
    ]


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


if __name__ == "__main__":
    sys.exit(main())
