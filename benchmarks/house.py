"""The shape of the source: rooms, imports, sizes, tests and public names, against their limits.

    python3 benchmarks/house.py             # a few seconds; needs nothing but Python
    python3 benchmarks/house.py --quick     # the same

Everything is read with `ast`; nothing of prcut is imported. Each figure is printed with its limit.
`--lines N` is for CI while the package is still longer than its limit: it is printed as short, and
fails only where it has grown beyond N.
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
# imports point to the same room or to one on its left
ROOMS = (
    *("errors", "numerics", "runtime", "graph", "search", "training", "pipeline", "ui"),
    "estimator",
)
NOT_ENTRIES = {"__init__", "__main__", "__pycache__", "py.typed"}
METHOD, METHOD_FILE = "fit_rows", "pipeline/fit.py"
LINES = "lines of Python in the package"


class Figure(NamedTuple):
    """One measured number, the bound it must keep, and what explains it."""

    name: str
    value: float
    bound: str
    """``"<= 9"`` or ``">= 0.9"``."""
    details: tuple[str, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether the bound is broken; NaN, which stands for "not there", breaks every bound."""
        sign, _, limit = self.bound.partition(" ")
        holds = self.value <= float(limit) if sign == "<=" else self.value >= float(limit)
        return not holds


def main(arguments: list[str] | None = None) -> int:
    """Print every figure with its limit; return 1 where one falls short."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="accepted; the whole is quick")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to measure")
    parser.add_argument("--lines", type=int, default=0, help="lines that are tolerated for now")
    given = parser.parse_args(arguments)
    figures = measure(given.root)
    for figure in figures:
        verdict = "SHORT" if figure.is_short else "ok"
        print(f"{verdict:5}  {figure.name:52} {figure.value:>9,.6g}  {figure.bound}")
        for line in figure.details:
            print(f"         {line}")
    short = [figure.name for figure in figures if figure.is_short]
    print("\n" + ("\n".join(["short:", *short]) if short else "holds: the house keeps its limits"))
    tolerated = {one.name for one in figures if one.name == LINES and one.value <= given.lines}
    return 1 if set(short) - tolerated else 0


def measure(root: Path) -> list[Figure]:
    """Return all figures of a checkout."""
    source = root / "src/prcut"
    trees = {
        _module(path, source): ast.parse(path.read_text("utf-8"), str(path))
        for path in sorted(source.rglob("*.py"))
    }
    return [
        _entries(source),
        *_import_figures(trees),
        *_size_figures(source),
        _bodies(trees),
        _mirrored(source, root / "tests"),
        *_public_names(trees),
        *_method_figures(source),
    ]


def _module(path: Path, source: Path) -> str:
    """Return ``"graph.build"``; a package is ``"graph.__init__"``."""
    return ".".join(path.relative_to(source).with_suffix("").parts)


# -- rooms and imports ---------------------------------------------------------------------------


def _entries(source: Path) -> Figure:
    names = {path.name.removesuffix(".py") for path in source.iterdir()} - NOT_ENTRIES
    return Figure("entries at the top of the package", len(names), "<= 9", (_joined(names),))


def _import_figures(trees: dict[str, ast.Module]) -> Iterator[Figure]:
    edges = {module: _imports(module, tree, set(trees)) for module, tree in trees.items()}
    right = sorted(
        f"{module} imports {other}"
        for module, others in edges.items()
        for other in others
        if module.partition(".")[0] not in NOT_ENTRIES and _rank(other) > _rank(module)
    )
    yield Figure("imports that point right", len(right), "<= 0", tuple(right))
    cycles = [" ⇄ ".join(sorted(group)) for group in _components(edges) if len(group) > 1]
    yield Figure("cycles of files", len(cycles), "<= 0", tuple(sorted(cycles)))


def _rank(module: str) -> int:
    """Return the position of a module's room; what is in no room lies right of all of them."""
    room = module.partition(".")[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def _imports(module: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Return the files of the package that a file imports, at any depth of its syntax."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {_file(name, known) for name in names if name.startswith("prcut.")}
    return found - {module, ""}


def _origin(module: str, node: ast.ImportFrom) -> str:
    """Return the absolute name of what a statement imports from."""
    if not node.level:
        return node.module or ""
    parents = ["prcut", *module.split(".")][: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _file(name: str, known: set[str]) -> str:
    """Return the module or package that ``prcut.a.b.name`` is taken from.

    Only the version may be imported from ``prcut`` itself.
    """
    parts = name.split(".")[1:]
    if parts == ["__version__"]:
        return ""
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in known:
            return prefix
        if f"{prefix}.__init__" in known:
            return f"{prefix}.__init__"
    return "__init__"


def _components(edges: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components (Kosaraju: two depth-first walks)."""
    incoming: dict[str, set[str]] = defaultdict(set)
    for module, others in edges.items():
        for other in others:
            incoming[other].add(module)
    order: list[str] = []
    seen: set[str] = set()
    for module in edges:
        order += _walk(module, edges, seen)
    seen = set()
    components = [set(_walk(module, incoming, seen)) for module in reversed(order)]
    return [component for component in components if component]


def _walk(start: str, edges: dict[str, set[str]], seen: set[str]) -> list[str]:
    """Return what is reachable and not yet seen, in the order in which it is left."""
    if start in seen:
        return []
    seen.add(start)
    left = [name for other in sorted(edges.get(start, ())) for name in _walk(other, edges, seen)]
    return [*left, start]


# -- sizes ---------------------------------------------------------------------------------------


def _size_figures(source: Path) -> Iterator[Figure]:
    files = [path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    lines = {path.relative_to(source).as_posix(): _line_count(path) for path in files}
    python = {name: count for name, count in lines.items() if name.endswith(".py")}
    data = {name: count for name, count in lines.items() if name not in python}
    remark = f"and {sum(data.values())} lines of data: {_joined(data)}"
    yield Figure(LINES, sum(python.values()), "<= 14800", (remark,))
    for most, allowed in ((400, 4), (500, 0)):
        longer = tuple(f"{name}: {count}" for name, count in sorted(python.items()) if count > most)
        yield Figure(f"files of more than {most} lines", len(longer), f"<= {allowed}", longer)
    counts = [count for name, count in python.items() if not name.endswith("__init__.py")]
    yield Figure("median lines of a file", median(counts or [0]), "<= 170")


def _line_count(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def _bodies(trees: dict[str, ast.Module]) -> Figure:
    """Nine of ten functions have no more lines, signature and docstring not counted."""
    lengths = sorted(
        _body_lines(node)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    rank = -(-9 * len(lengths) // 10) - 1
    value = lengths[rank] if lengths else 0
    return Figure(f"lines of a body, p90 of {len(lengths)} functions", value, "<= 20")


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    decorators = getattr(body[0], "decorator_list", [])
    first = min([body[0].lineno, *(node.lineno for node in decorators)])
    return (body[-1].end_lineno or first) - first + 1


def _method_figures(source: Path) -> Iterator[Figure]:
    """Measure the method in one function, and the estimator around it."""
    missing = float("nan"), "it does not exist"
    lines, *remarks = missing
    path = source / METHOD_FILE
    if path.exists():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == METHOD:
                lines, remarks = float((node.end_lineno or 0) - node.lineno + 1), []
    yield Figure(f"lines of {METHOD} in {METHOD_FILE}", lines, "<= 60", tuple(remarks))
    path = source / "estimator.py"
    lines, *remarks = (float(_line_count(path)),) if path.exists() else missing
    yield Figure("lines of estimator.py", lines, "<= 350", tuple(remarks))


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


def _public_names(trees: dict[str, ast.Module]) -> Iterator[Figure]:
    declared = {
        module.removesuffix("__init__").removesuffix("."): sorted(_declared(tree))
        for module, tree in trees.items()
        if module.endswith("__init__")
    }
    top = set(declared.pop("", ())) - {"__version__"}
    yield Figure("public names at the top", len(top), "<= 15", (_joined(top),))
    second = {name for names in declared.values() for name in names}
    details = [f"{room}: {_joined(names)}" for room, names in declared.items() if names]
    yield Figure("public names of the rooms", len(second), "<= 50", tuple(details))


def _declared(tree: ast.Module) -> set[str]:
    """Return the names in ``__all__``, also where it is built from a table of lazy imports."""
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
                values |= {target.id: node.value} if node.value is not None else {}
    return set(_strings(values["__all__"], values)) if "__all__" in values else set()


def _strings(node: ast.expr, values: dict[str, ast.expr]) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                yield from _strings(item, values)
        case ast.Dict(keys=keys):
            for key in keys:
                yield from _strings(key, values) if key is not None else ()
        case ast.Starred(value=inner) | ast.Call(args=[inner]):
            yield from _strings(inner, values)
        case ast.Name(id=name) if name in values:
            yield from _strings(values[name], values)
        case ast.BinOp(left=left, right=right):
            yield from (*_strings(left, values), *_strings(right, values))
        case _:
            raise ValueError(f"__all__ cannot be read from {ast.unparse(node)!r}")


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


if __name__ == "__main__":
    sys.exit(main())
