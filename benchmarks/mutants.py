"""Alter the code a little, many times over, and count how often its own tests notice.

A mutant is one module with one change: a comparison that includes its bound, a sum that is a
difference, a number that is larger, a condition that is turned around, a call that is left out.
Nobody picks the changes: every possible one has a number that is a hash of the function and the
line, and those with the lowest numbers of each module are run. A change elsewhere in a module
therefore leaves most of its mutants as they were.

A mutant is killed when a test of the module fails, crashes or does not end: its own doctests,
``tests/<room>/test_<module>.py``, and the files in ``ALSO``. Some survivors are no fault: they
change white space, or the size at which one right method follows another.

Each mutant runs in a fork of one process that has loaded NumPy, torch and FAISS already, with the
altered module compiled in memory: no file of the checkout is written.

Exits with 1 where fewer than 85 % of all mutants, or 80 % of a module's, were killed.

    python benchmarks/mutants.py                           # about 20 minutes on two cores
    python benchmarks/mutants.py --quick                   # two mutants of each module
    python benchmarks/mutants.py --only search/merge.py    # one module, its survivors as patches
"""

import ast
import difflib
import doctest
import hashlib
import importlib
import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from operator import itemgetter
from pathlib import Path
from typing import Any

from _shared import options_of, verdict

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/prcut"
# the core of every room from the numerics to the training
MODULES = (
    *("numerics/cuts.py", "numerics/objective.py", "numerics/expectation.py"),
    *("numerics/certificate.py", "runtime/folder.py", "runtime/shuffle.py"),
    *("graph/neighbors.py", "graph/rows.py", "graph/build.py", "graph/similarity_graph.py"),
    *("search/kernels.c", "search/fragments.py", "search/merge.py", "search/moves.py"),
    *("search/sweep.py", "search/limits.py"),
    *("training/loss.py", "training/pairs.py", "training/state.py"),
)
# test files of a module, in addition to the file that mirrors it
ALSO = {
    "numerics/expectation.py": ("numerics/test_objective.py",),
    "numerics/objective.py": ("numerics/test_errata.py",),
    "search/kernels.c": (
        *("search/test_merge.py", "search/test_moves.py", "search/test_sweep.py"),
        "search/test_fragments.py",
    ),
}
PER_MODULE, PER_MODULE_QUICK = 8, 2
LEAST_KILLED, LEAST_KILLED_OF_MODULE = 0.85, 0.80
# limits for one mutant: a loop that does not end is stopped, and its mutant counts as killed
CPU_SECONDS, WALL_SECONDS = 120, 400

AS_IT_IS = " as it is"


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    name: str
    source: str

    def patch(self) -> str:
        """Return the lines that differ."""
        before = (SOURCE / self.module).read_text("utf-8")
        if self.module.endswith(".py"):
            before = ast.unparse(ast.parse(before))
        lines = difflib.unified_diff(before.splitlines(), self.source.splitlines(), n=1)
        return "\n".join([*lines][2:])


# -- changes of Python ----------------------------------------------------------------------------

_PAIRS = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
    (ast.BitAnd, ast.BitOr),
)
_NAME_PAIRS = (
    ("all", "any"),
    ("argmax", "argmin"),
    ("ceil", "floor"),
    ("max", "min"),
    ("maximum", "minimum"),
    ("ones", "zeros"),
)


def _both_ways(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}


SWAPPED_OPERATORS = _both_ways(_PAIRS) | dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)
SWAPPED_NAMES = _both_ways(_NAME_PAIRS) | {"expm1": "exp", "log1p": "log"}


def python_changes(source: str) -> Iterator[tuple[str, str, Callable[[], tuple[str, str]]]]:
    """Yield for every possible change its function, the code, and what makes code and module."""

    def make(number: int) -> tuple[str, str]:
        tree = ast.parse(source)
        _, node, alter = [*_visit(tree, "")][number]
        alter()
        ast.fix_missing_locations(tree)
        return ast.unparse(node), ast.unparse(tree)

    for number, (function, node, _) in enumerate(_visit(ast.parse(source), "")):
        yield function, ast.unparse(node), partial(make, number)


def _short(code: str) -> str:
    code = " ".join(code.split())
    return code if len(code) <= 120 else f"{code[:80]} … {code[-35:]}"


def _visit(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST, Callable[[], None]]]:
    """Yield the function, the statement or expression, and what alters it in place."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if node.name == "__repr__":
            return
        function = f"{function}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        # types, decorators and messages are not behaviour that a test should pin down
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            for what, alter in _own_changes(child):
                # a number or a name says little without what surrounds it
                is_small = isinstance(what, ast.Constant | ast.Name | ast.Attribute)
                is_small &= isinstance(node, ast.expr | ast.keyword | ast.Assign | ast.Return)
                yield function, node if is_small else what, alter
            yield from _visit(child, function)


def _own_changes(node: ast.AST) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Yield what changes in one node, and the function that changes it in place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED_OPERATORS:
        swapped = SWAPPED_OPERATORS[type(node.ops[0])]
        yield node, lambda: node.ops.__setitem__(0, swapped())
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        is_text = isinstance(getattr(node, "left", None), ast.Constant | ast.JoinedStr) and (
            isinstance(getattr(node.left, "value", 0.0), str)  # type: ignore[union-attr]
        )
        if type(node.op) in SWAPPED_OPERATORS and not is_text:
            swapped = SWAPPED_OPERATORS[type(node.op)]
            yield node, lambda: setattr(node, "op", swapped())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, lambda: _become(node, ast.Call(ast.Name("bool"), [node.operand], []))
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield node, lambda: setattr(node, "value", _other_value(node.value))
    elif isinstance(node, ast.Name) and node.id in SWAPPED_NAMES:
        yield node, lambda: setattr(node, "id", SWAPPED_NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in SWAPPED_NAMES:
        yield node, lambda: setattr(node, "attr", SWAPPED_NAMES[node.attr])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, lambda: _become(node, ast.Pass())
    elif isinstance(node, ast.If):
        yield node.test, lambda: _become(node.test, ast.Constant(value=False))


def _become(node: ast.AST, other: ast.AST) -> None:
    node.__class__ = other.__class__  # type: ignore[assignment]
    node.__dict__ = {**other.__dict__, "lineno": getattr(node, "lineno", 1), "col_offset": 0}


def _other_value(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 2 * value if value else 1.0


# -- changes of C ---------------------------------------------------------------------------------

_C_PAIRS = (("<", "<="), (">", ">="), ("==", "!="), ("+", "-"), ("&&", "||"), ("+=", "-="))
_C_SWAPS = _both_ways(_C_PAIRS) | {"*": "+", "/": "*"}
_C_TOKEN = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|-=|<|>|\+|-|\*|/)(?= )")


def c_changes(source: str) -> Iterator[tuple[str, str, Callable[[], tuple[str, str]]]]:
    """Yield the same for C, where an operator has a space on both sides."""
    function, is_comment, offset = "", False, 0
    for line in source.splitlines(keepends=True):
        if found := re.match(r"(?:EXPORT |static )[\w *]*?(\w+)\(", line):
            function = found[1]
        is_comment = is_comment or "/*" in line
        # memory and its failures are not simulated
        if (
            not is_comment
            and not line.startswith("#")
            and not re.search(r"alloc\(|free\(|failed", line)
        ):
            for token in _C_TOKEN.finditer(line):
                after = line[: token.start()] + _C_SWAPS[token[0]] + line[token.end() :]
                altered = source[:offset] + after + source[offset + len(line) :]
                made = after.strip(), altered
                yield function, line.strip(), lambda made=made: made  # type: ignore[misc]
        is_comment = is_comment and "*/" not in line
        offset += len(line)


# -- the choice -----------------------------------------------------------------------------------


def mutants_of(module: str, n_mutants: int) -> list[Mutant]:
    """Return as many mutants of a module as are asked for, those with the lowest hashes."""
    source = (SOURCE / module).read_text("utf-8")
    changes = python_changes if module.endswith(".py") else c_changes
    seen: Counter[str] = Counter()
    found = []
    for function, before, make in changes(source):
        if not function:  # constants of a module: tastes and bounds, which tests would only repeat
            continue
        key = f"{module} {function}: {before}"
        seen[key] += 1
        found.append((hashlib.sha256(f"{key} #{seen[key]}".encode()).hexdigest(), key, make))
    drawn = []
    for _, key, make in sorted(found, key=itemgetter(0))[:n_mutants]:
        after, altered = make()
        drawn.append(Mutant(module, f"{_short(key)} → {_short(after)}", altered))
    return drawn


# -- a run ----------------------------------------------------------------------------------------


class _Altered(MetaPathFinder, SourceFileLoader):
    """Import one module from altered source."""

    def __init__(self, mutant: Mutant) -> None:
        dotted = mutant.module.removesuffix(".py").replace("/", ".")
        SourceFileLoader.__init__(self, f"prcut.{dotted}", str(SOURCE / mutant.module))
        self.altered = mutant.source

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002
        return compile(self.altered, str(self.path), "exec")


def run_tests(mutant: Mutant, log: Path) -> None:
    """Run the tests of a mutant in this process, a fork, and end it: 0 where all passed."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(WALL_SECONDS)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if mutant.module.endswith(".py"):
        finder = _Altered(mutant)
        sys.meta_path.insert(0, finder)
        # pytest would run the doctests of the file on disk
        if doctest.testmod(importlib.import_module(finder.name)).failed:
            os._exit(1)
    else:
        source = log.with_suffix(".c")
        source.write_text(mutant.source, "utf-8")
        library = log.with_suffix(".so")
        flags = "-O1", "-ffp-contract=off", "-shared", "-fPIC"
        subprocess.run(["cc", *flags, "-o", library, source, "-lm"], check=True)
        os.environ["PRCUT_KERNELS"] = str(library)
    import pytest

    # only the plugins that the tests need: loading all of them takes longer than most tests
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = "no:cacheprovider", "pytest_timeout", "_hypothesis_pytestplugin"
    options = ["-x", "-q", "--hypothesis-seed=0", *(f"-p{plugin}" for plugin in plugins)]
    path = Path(mutant.module)
    files = f"{path.parent}/test_{path.stem}.py", *ALSO.get(mutant.module, ())
    tests = [str(ROOT / "tests" / file) for file in files]
    os._exit(int(pytest.main([*options, "-m", "not weekly", *tests])))


def log_of(folder: str, mutant: Mutant) -> Path:
    """Return the file that the tests of a mutant print to."""
    return Path(folder) / f"{hashlib.sha256(mutant.name.encode()).hexdigest()[:16]}.log"


def run_all(mutants: list[Mutant], n_jobs: int) -> dict[Mutant, int]:
    """Return how every mutant's tests ended: 0 where all passed."""
    for name in ("faiss", "pyarrow.parquet", "pytest", "sklearn.datasets"):
        importlib.import_module(name)
    importlib.import_module("scipy.sparse.linalg")
    importlib.import_module("torch")
    ended: dict[Mutant, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        running: dict[int, Mutant] = {}
        waiting = list(reversed(mutants))
        while waiting or running:
            while waiting and len(running) < n_jobs:
                mutant = waiting.pop()
                child = os.fork()
                if child == 0:
                    try:
                        os.chdir(ROOT)
                        run_tests(mutant, log_of(folder, mutant))
                    except BaseException:
                        traceback.print_exc()
                        sys.stderr.flush()
                    finally:
                        os._exit(70)
                running[child] = mutant
            child, status = os.wait()
            if child in running:
                mutant = running.pop(child)
                ended[mutant] = os.waitstatus_to_exitcode(status)
                verb = "survived" if ended[mutant] == 0 else "killed"
                print(f"{verb:8} ({ended[mutant]:3}) {mutant.name}", flush=True)
                if ended[mutant] not in (0, 1) or mutant.name.endswith(AS_IT_IS):
                    print(f"{log_of(folder, mutant).read_text()[-400:]}")
    return ended


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants, print a table by module, and return 1 where too few were killed."""
    parser = options_of(__doc__, "two mutants of each module")
    parser.add_argument("--only", nargs="+", default=list(MODULES), help="modules to alter")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    started = time.monotonic()
    n_mutants = PER_MODULE_QUICK if given.quick else PER_MODULE
    modules = [module for module in given.only if (SOURCE / module).exists()]

    # a module whose tests fail as it is would count every mutant as killed
    unaltered = [Mutant(name, f"{name}{AS_IT_IS}", (SOURCE / name).read_text()) for name in modules]
    broken = [one.module for one, code in run_all(unaltered, given.jobs).items() if code]
    if broken:
        return verdict([f"tests fail on the code as it is: {', '.join(broken)}"], "")

    mutants = [mutant for module in modules for mutant in mutants_of(module, n_mutants)]
    ended = run_all(mutants, given.jobs)
    survived = [mutant for mutant, code in ended.items() if code == 0]
    for mutant in survived:
        print(f"\n{mutant.name}\n{mutant.patch()}")

    print("\n| module | mutants | killed |\n|---|---|---|")
    short = []
    for module in modules:
        total = sum(one.module == module for one in mutants)
        killed = total - sum(one.module == module for one in survived)
        print(f"| {module} | {total} | {killed} |")
        if killed < LEAST_KILLED_OF_MODULE * total and not given.quick:
            short.append(f"{module}: {killed} of {total} < {LEAST_KILLED_OF_MODULE:.0%}")
    fraction = 1 - len(survived) / len(mutants)
    print(f"{time.monotonic() - started:.0f} s")
    if fraction < LEAST_KILLED:
        short.append(f"{fraction:.0%} killed < {LEAST_KILLED:.0%}")
    return verdict(short, f"{fraction:.0%} of {len(mutants)} mutants are killed")


if __name__ == "__main__":
    sys.exit(main())
