"""Pages made from the code: commands, public names, examples and tables of results."""

import ast
import functools
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import layers

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks/results"
_HELP_COLUMNS = "84"


# -- the command line ----------------------------------------------------------------------------


def commands() -> dict[str, str]:
    """Return what ``--help`` prints, of prcut itself ("") and of every command."""
    import typer

    from prcut.ui.cli.commands import app

    names = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: help_text(name) for name in ("", *names)}


def help_text(command: str) -> str:
    """Return the help of one command, without colours, as on a terminal of a certain width."""
    from typer.testing import CliRunner

    from prcut.ui.cli.commands import app

    plain = {"COLUMNS": _HELP_COLUMNS, "TERM": "dumb", "NO_COLOR": "1"}
    os.environ.update(TERMINAL_WIDTH=_HELP_COLUMNS)  # typer's own, where output is not a terminal
    arguments = [*command.split(), "--help"]
    run = CliRunner().invoke(app, arguments, prog_name="prcut", env=plain)
    return "\n".join(line.rstrip() for line in run.output.strip().splitlines())


def cli_page() -> str:
    """Show the help of every command, as the commands themselves print it."""
    parts = [
        "# Command line\n\nThis page shows the output of `prcut --help` and "
        "`prcut COMMAND --help`.\n"
    ]
    for name, text in commands().items():
        title = f"prcut {name}".strip()
        parts.append(f"## {title}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


# -- public names --------------------------------------------------------------------------------


class PublicName(NamedTuple):
    """A name that can be imported from ``package``, and the module that defines it."""

    package: str
    name: str
    home: str

    @property
    def path(self) -> str:
        """The name that its page and all links use."""
        return f"{self.home}.{self.name}"

    @property
    def room(self) -> str:
        """The room on whose page it is."""
        return self.home.split(".")[1]


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """Return the names of ``prcut`` itself, then what its rooms add, from the left."""
    packages = [Path("prcut"), *(Path("prcut") / room for room in layers.rooms())]
    nested = sorted(layers.SOURCE.rglob("*/__init__.py"))
    packages += [Path("prcut") / path.relative_to(layers.SOURCE).parent for path in nested]
    found: dict[str, PublicName] = {}
    for package in dict.fromkeys(".".join(path.parts) for path in packages):
        for name, home in _names_of(package):
            found.setdefault(f"{home}.{name}", PublicName(package, name, home))
    return tuple(found.values())


def _names_of(package: str) -> Iterator[tuple[str, str]]:
    """Yield what a package declares; a room of one file declares the classes that it defines."""
    module = importlib.import_module(package)
    things = {name: getattr(module, name) for name in getattr(module, "__all__", vars(module))}
    for name, thing in things.items():
        home = getattr(thing, "__module__", None)
        if hasattr(module, "__path__"):  # names of others, also constants, if it says so
            is_public = hasattr(module, "__all__") and name != "__version__"
        else:
            is_public = home == package and not name.startswith("_")
        if is_public:
            yield name, str(home or package)


@functools.cache
def public_paths() -> frozenset[str]:
    """Return the paths that links may lead to, without the members of classes."""
    return frozenset(each.path for each in public_names())


def has_page(path: str) -> bool:
    """Return whether a dotted path is a public name or a member of one."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in public_paths() for length in range(1, len(parts) + 1))


def room_pages() -> dict[str, str]:
    """Return the page of every room that has public names; mkdocstrings does the rest."""
    found: dict[str, str] = {}
    for room in layers.rooms():
        paths = dict.fromkeys(each.path for each in public_names() if each.room == room)
        if paths:
            remark = (importlib.import_module(f"prcut.{room}").__doc__ or "").strip()
            parts = [f"# prcut.{room}\n", f"{remark}\n", *(f"::: {path}\n" for path in paths)]
            found[room_page(room)] = "\n".join(parts)
    return found


def room_page(room: str) -> str:
    """Return where the page of a room is."""
    return f"reference/{room}.md"


# what people want to do, with the names that do it; a name may serve several
TASKS = {
    "Cluster rows, and predict new ones": "PRCut Assigner FitConfig fit_rows Fit",
    "Cluster a graph of your own": "SimilarityGraph build_graph find_neighbors Neighbors "
    "graph_features find_partition refine_labels Partition",
    "Merge clusters, see how they nest": "merge_clusters MergeTree",
    "Work with files larger than memory": "build_blocks fit_run assign_parquet "
    "plan_stages open_source Progress",
    "Use several machines": "Engine LocalEngine RayEngine",
    "Keep what was found": "save_model load_model save_graph load_graph",
    "Look at a result": "write_report inspect_run Inspection ClusterMapDisplay ClusterSizesDisplay "
    "ConfusionDisplay CutMatrixDisplay",
    "Measure a partition": "ratio_cut normalized_cut cluster_cuts hard_objective "
    "spectral_lower_bound",
    "Train in a loop of your own": "RatioCutLoss RunningClusterMass soft_ratio_cut "
    "soft_graph_ratio_cut expected_ratio_cut ratio_cut_upper_bound cluster_imbalance "
    "balance_factor",
    "Train as the paper does": "train TrainConfig TrainState Record UniformPairs "
    "WalkPairs GatheredPairs",
    "Embed texts and images, and compare encoders": "embed score_representation",
    "Catch errors and warnings": "PRCutError InvalidInputError CorruptFileError StageError "
    "DataWarning",
}


def tasks() -> dict[str, list[PublicName]]:
    """Return the public names of every task; those that no task has stand in the tables below."""
    known = {each.name: each for each in public_names()}
    return {
        task: [known[name] for name in names.split() if name in known]
        for task, names in TASKS.items()
    }


def names_page() -> str:
    """List the public names by task, then by place with the first line of each docstring."""
    lines = [
        "# Reference\n",
        "The following names are public. The second half of the page says where to import each "
        "from. Everything else is private and may change without notice. The commands have "
        "[their own page](cli.md).\n",
        "## By task\n",
        "| to | use |",
        "|---|---|",
    ]
    for task, names in tasks().items():
        links = ", ".join(f"[`{each.name}`][{each.path}]" for each in names)
        lines.append(f"| {task} | {links} |")
    lines.append("")
    for package in dict.fromkeys(each.package for each in public_names()):
        lines += [f"## {package}\n", "| name | what it is |", "|---|---|"]
        for each in public_names():
            if each.package == package:
                thing = getattr(importlib.import_module(package), each.name)
                lines.append(f"| [`{each.name}`][{each.path}] | {_first_line(thing)} |")
        lines.append("")
    return "\n".join(lines)


def _first_line(thing: object) -> str:
    first = (thing.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    first = re.sub(r":math:`([^`]*)`", r"$\1$", first)
    return re.sub(r":\w+:`~?", "`", first)


def without_private_links(markdown: str) -> str:
    """Turn links to names without a page into plain code that says where they are."""

    def plain(found: re.Match[str]) -> str:
        is_public = has_page(found[2])
        return found[0] if is_public else f"`{found[2].removeprefix('prcut.')}`"

    return re.sub(r"\[`([^`]+)`\]\[(prcut\.[\w.]+)\]", plain, markdown)


# -- source --------------------------------------------------------------------------------------


def source_of(module: str, names: str) -> str:
    """Return the first of some functions that a module has, as a block of code."""
    path = layers.SOURCE / f"{module.replace('.', '/')}.py"
    text = path.read_text("utf-8")
    found = {
        node.name: ast.get_source_segment(text, node)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    name = next(name for name in names.split() if name in found)
    relative = path.relative_to(ROOT).as_posix()
    return f'```python title="{relative}"\n{found[name]}\n```'


# -- results -------------------------------------------------------------------------------------


@functools.cache
def results(table: str) -> str:
    """Return the summary of a table, computed from its committed records where the harness can."""
    from benchmarks.harness.commands import bench_table
    from benchmarks.harness.tables import TABLES

    if table not in TABLES:
        return (RESULTS / f"{table}.md").read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:  # the summary is also written where it reads
        for path in RESULTS.glob("*.jsonl"):
            (Path(folder) / path.name).symlink_to(path)
        return bench_table(table, results=folder, summary_only=True, mixed=True)


# -- the gallery ---------------------------------------------------------------------------------


def examples() -> list[Path]:
    """Return the scripts, in the order of the gallery."""
    return sorted((ROOT / "examples").glob("*.py"))


def gallery() -> dict[str, str | bytes]:
    """Return every example with what it printed and drew just now, and a page that lists them."""
    made: dict[str, str | bytes] = {}
    lines = [
        "# Gallery\n",
        "Each page is a script from `examples/` with its output. The scripts use data that comes "
        "with scikit-learn, or make their own.\n",
        '<div class="grid cards gallery" markdown>\n',
    ]
    with ThreadPoolExecutor(2) as pool:  # each is a process of its own, of one thread
        outcomes = dict(zip(examples(), pool.map(run_example, examples()), strict=True))
    for path, (printed, pictures) in outcomes.items():
        title, _, prose = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition(
            "\n"
        )
        title = title.rstrip(".")
        prose = re.sub(r"\n {4}(python .*)", r"\n```text\n\1\n```", prose.strip())
        page = [f"# {title}\n", prose, ""]
        for name, content in pictures.items():
            made[f"gallery/{path.stem}-{name}"] = content
            page.append(f"![{title}]({path.stem}-{name})\n")
        code = _without_docstring(path.read_text("utf-8"))
        page += [f'```python title="examples/{path.name}"\n{code}```\n']
        page += ["Output:\n", f"```text\n{printed.rstrip()}\n```\n"]
        made[f"gallery/{path.stem}.md"] = "\n".join(page)
        thumbnail = f"{path.stem}-{next(iter(pictures))}"
        lines.append(
            f"-   [![{title}]({thumbnail})]({path.stem}.md)\n\n    [{title}]({path.stem}.md)\n"
        )
    lines.append("</div>")
    made["gallery/index.md"] = "\n".join(lines) + "\n"
    return made


@functools.cache
def run_example(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return what a script prints and the pictures that it saves, run in an empty folder."""
    return _run(path.name, [str(path)])


def _run(name: str, arguments: list[str], given: str = "") -> tuple[str, dict[str, bytes]]:
    """Run Python in an empty folder, however long it takes: a busy machine fails no build."""
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(importlib.import_module("prcut").__file__ or "").parent.parent)
        run = subprocess.run(  # noqa: S603
            [sys.executable, "-W", "error::FutureWarning", *arguments],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "svg", "OMP_NUM_THREADS": "1", "PYTHONPATH": source},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise RuntimeError(f"{name} failed:\n{run.stderr}")
        paths = sorted([*Path(folder).glob("*.svg"), *Path(folder).glob("*.png")])
        # commands name files by whole paths; the reader's folder has another name
        printed = run.stdout.replace(f"{Path(folder).resolve()}/", "")
        return printed, {path.name: path.read_bytes() for path in paths}


def _without_docstring(text: str) -> str:
    first = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[first.end_lineno :]).lstrip("\n") + "\n"


# -- the tutorial --------------------------------------------------------------------------------

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
# runs the blocks that come on standard input, and prints what each printed
_BLOCKS = """
import contextlib, io, json, subprocess, sys
names, printed = {"__name__": "__main__"}, []
for code, commands in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
        for words in commands:
            run = [sys.executable, "-m", *words]
            print(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def tutorials() -> list[Path]:
    """Return the pages whose blocks are run when the site is built."""
    return sorted((ROOT / "docs/tutorial").glob("*.md"))


@functools.cache
def run_tutorial(path: Path) -> tuple[list[str], dict[str, bytes]]:
    """Return what every block of a page prints, and the pictures that they save."""
    blocks = []
    for kind, code in _BLOCK.findall(path.read_text("utf-8")):
        words = [shlex.split(line[2:]) for line in code.splitlines() if kind == "console"]
        ours = [each for each in words if each[0] == "prcut"]
        blocks.append((code if kind == "python" else "", ours))
    printed, pictures = _run(path.name, ["-c", _BLOCKS], json.dumps(blocks))
    found: list[str] = json.loads(printed)
    return found, pictures


def tutorial_pictures() -> dict[str, bytes]:
    """Return what the tutorial draws, under the names that its pages use."""
    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(tutorials(), pool.map(run_tutorial, tutorials()), strict=True))
    return {
        f"tutorial/{path.stem}-{name}": picture
        for path, (_, pictures) in outcomes.items()
        for name, picture in pictures.items()
    }


def with_outputs(path: Path, markdown: str) -> str:
    """Put below every block of a page what it printed."""
    printed = iter(run_tutorial(path)[0])

    def shown(found: re.Match[str]) -> str:
        text = next(printed).rstrip()
        return f"{found[0]}\n```text\n{text}\n```\n" if text else found[0]

    return _BLOCK.sub(shown, markdown)
