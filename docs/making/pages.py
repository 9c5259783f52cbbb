"""Pages made from the code: commands, modules, examples and tables of results."""

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import layers

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks/results"
# its options are on the page of the commands
_FACES = {"__main__", "cli", "cli_options", "cli_shared", "console", "display"}
_HELP_COLUMNS = "84"
_EXAMPLE_SECONDS = 120


# -- the command line ----------------------------------------------------------------------------


def commands() -> dict[str, str]:
    """What ``--help`` prints, of prcut itself ("") and of every command."""
    import typer

    from prcut.cli import app

    names = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name: help_text(name) for name in ("", *names)}


def help_text(command: str) -> str:
    """Of one command, without colours, as on a terminal of a certain width."""
    from typer.testing import CliRunner

    from prcut.cli import app

    plain = {"COLUMNS": _HELP_COLUMNS, "TERM": "dumb", "NO_COLOR": "1"}
    os.environ.update(TERMINAL_WIDTH=_HELP_COLUMNS)  # typer's own, where output is not a terminal
    arguments = [*command.split(), "--help"]
    run = CliRunner().invoke(app, arguments, prog_name="prcut", env=plain)
    return "\n".join(line.rstrip() for line in run.output.strip().splitlines())


def cli_page() -> str:
    """The help of every command, as the commands themselves print it."""
    parts = [
        "# Command line\n\nThis page is what `prcut --help` and `prcut COMMAND --help` print, "
        "taken from them when the site is built.\n"
    ]
    for name, text in commands().items():
        title = f"prcut {name}".strip()
        parts.append(f"## {title}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


# -- modules -------------------------------------------------------------------------------------


def documented_modules() -> list[str]:
    """All modules but those of the command line."""
    return [name for name in layers.modules() if name not in _FACES]


def modules_by_layer() -> dict[str, list[str]]:
    """Modules under the titles of their layers, the top first; the benchmarks come last."""
    numbers, titles, modules = layers.layer_numbers(), layers.layer_titles(), documented_modules()
    found = {
        titles[number].capitalize(): [name for name in modules if numbers.get(name) == number]
        for number in sorted(titles, reverse=True)
    }
    return {**found, "Benchmarks": [name for name in modules if name.startswith("bench.")]}


def module_page(name: str) -> str:
    """Where the page of a module is."""
    return f"reference/modules/{name}.md"


def module_text(name: str) -> str:
    """The page of a module: mkdocstrings does the rest."""
    return f"# prcut.{name}\n\n::: prcut.{name}\n"


def names_page() -> str:
    """The public names, each with the first line of its docstring."""
    import prcut

    lines = [
        "# Reference\n",
        "These names can be imported from `prcut`. All else is in its module; modules are listed "
        "by layer, and what a module's `__all__` names is meant to be used. The commands are on "
        "[their own page](cli.md).\n",
        "| name | what it is |",
        "|---|---|",
    ]
    for name in prcut.__all__:
        if name == "__version__":
            continue
        thing = getattr(prcut, name)
        first = (thing.__doc__ or "").strip().splitlines()[0]
        first = re.sub(r":math:`([^`]*)`", r"$\1$", first)
        first = re.sub(r":\w+:`", "`", first)
        lines.append(f"| [`{name}`][{thing.__module__}.{name}] | {first} |")
    return "\n".join(lines) + "\n"


# -- results -------------------------------------------------------------------------------------


@functools.cache
def results(table: str) -> str:
    """The summary of a table, computed from its committed records."""
    from prcut.bench.cli import BenchOptions, bench_table

    with tempfile.TemporaryDirectory() as folder:  # the summary is also written where it reads
        for path in RESULTS.glob("*.jsonl"):
            (Path(folder) / path.name).symlink_to(path)
        summary = bench_table(table, BenchOptions(results=folder, summary_only=True))
    return re.sub(r"^### (\w+) .*$", functools.partial(_with_picture, table), summary, flags=re.M)


def _with_picture(table: str, heading: re.Match[str]) -> str:
    """A heading, followed by the plot of its data set where there is one."""
    name = f"{table}-{heading[1]}.svg"
    if not (RESULTS / name).exists():
        return heading[0]
    return f"{heading[0]}\n\n![Accuracy against time, {heading[1]}](results/{name})"


def result_pictures() -> dict[str, bytes]:
    """Committed plots of quality against time."""
    return {f"results/{path.name}": path.read_bytes() for path in sorted(RESULTS.glob("*.svg"))}


# -- the gallery ---------------------------------------------------------------------------------


def examples() -> list[Path]:
    """The scripts, in the order of the gallery."""
    return sorted((ROOT / "examples").glob("*.py"))


def gallery() -> dict[str, str | bytes]:
    """Every example with what it printed and drew just now, and a page that lists them."""
    made: dict[str, str | bytes] = {}
    lines = [
        "# Gallery\n",
        "Each of these is a script in `examples/`, run when this site was built: what it prints "
        "and draws is what came out of it. All use data that comes with scikit-learn, or make "
        "their own.\n",
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
        page += ["What it printed:\n", f"```text\n{printed.rstrip()}\n```\n"]
        made[f"gallery/{path.stem}.md"] = "\n".join(page)
        lines.append(f"* [{title}]({path.stem}.md)")
    made["gallery/index.md"] = "\n".join(lines) + "\n"
    return made


@functools.cache
def run_example(path: Path) -> tuple[str, dict[str, bytes]]:
    """What a script prints and the pictures that it saves, run in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(importlib.import_module("prcut").__file__ or "").parent.parent)
        run = subprocess.run(  # noqa: S603
            [sys.executable, "-W", "error::FutureWarning", path],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "svg", "OMP_NUM_THREADS": "1", "PYTHONPATH": source},
            capture_output=True,
            text=True,
            timeout=_EXAMPLE_SECONDS,
            check=False,
        )
        if run.returncode:
            raise RuntimeError(f"{path.name} failed:\n{run.stderr}")
        pictures = {each.name: each.read_bytes() for each in sorted(Path(folder).glob("*.svg"))}
        return run.stdout, pictures


def _without_docstring(text: str) -> str:
    first = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[first.end_lineno :]).lstrip("\n") + "\n"
