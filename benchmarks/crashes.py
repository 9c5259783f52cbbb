"""A fault at every point of every stage of a run, and the run again: the same files as without.

    python benchmarks/crashes.py            # every stage, some 280 faults: an hour
    python benchmarks/crashes.py --only dedup    # of this command
    python benchmarks/crashes.py --quick    # one point of each stage

Points: while a file is written, before it is flushed, before and after it gets its name. Faults:
SIGKILL, SIGTERM, SIGINT, a full disk, no memory. After each, every file that can be seen is that of
the undisturbed run, byte for byte; then the same command goes on, and ends with the same files.
Ctrl-C and SIGTERM say how to go on.

Commands run in forks of this process, which has imported everything: so hundreds take minutes.
"""

import errno
import faulthandler
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import faiss
import torch

import prcut.curate.dedup
import prcut.runs.labels
import prcut.runs.run  # noqa: F401
from _shared import options_of, verdict, write_planted
from prcut.runtime import folder as storage
from prcut.ui.cli.commands import main as prcut_main

N_ROWS, N_FEATURES, N_CLUSTERS = 2100, 8, 4
POINTS = ("write", "flush", "rename", "renamed")
FAULTS = ("SIGKILL", "SIGTERM", "SIGINT", "disk", "memory")
# files of a stage, by their path in the run folder
ON_DISK = {
    "plan": r"plan\.json",
    "cells": r"blocks/centroids",
    "scatter": r"blocks/exchange/",
    "gather": r"blocks/block-",
    "blocks": r"blocks/manifest",
    "joined": r"graph/",
    "partition": r"partition/",
    "lesson": r"lesson/",
    "checkpoint": r"checkpoint/",
    "model": r"model/",
    "history": r"history",
    "result": r"result\.json",
    "labels": r"labels/",
    "status": r"status/",
}
IN_MEMORY = {"graph": r"graph/", "search's checkpoint": r"checkpoint/", "search's model": r"model/"}
OF_DEDUP = {
    "dedup's plan": r"_prcut/plan",
    "digests": r"_prcut/work/digests",
    "copies": r"_prcut/work/copies",
    "dedup's blocks": r"_prcut/work/blocks/",
    "near pairs": r"_prcut/work/pairs",
    "kept rows": r"(kept|groups)/",
    "dedup's manifest": r"_prcut/manifest",
}
# after which a command is taken for hanging
SECONDS = 120.0


class Fault:
    """Strikes once, at a point of a file that a pattern matches."""

    def __init__(self, run: Path, pattern: str, point: str, fault: str, skip: int) -> None:
        self.run, self.pattern, self.point, self.fault = run, re.compile(pattern), point, fault
        self.left = skip

    def arm(self) -> None:
        """In the process that is to be struck."""
        write, sync, replace = storage.Folder.write_bytes, storage._sync, os.replace

        def write_bytes(folder: storage.Folder, name: str, pieces: object) -> object:
            return write(folder, name, self._cut(f"{folder.path}/{name}", pieces))  # type: ignore[arg-type]

        def flush(path: str) -> None:
            # a file is flushed under its temporary name: .name.token.prcut-tmp
            folder, name = os.path.split(path)
            if name.endswith("prcut-tmp"):
                self.strike("flush", f"{folder}/{name[1:].rsplit('.', 2)[0]}")
            sync(path)

        def rename(source: str, target: str) -> None:
            self.strike("rename", target)
            replace(source, target)
            self.strike("renamed", target)

        storage.Folder.write_bytes = write_bytes  # type: ignore[method-assign,assignment]
        storage._sync = flush
        os.replace = rename  # type: ignore[assignment]

    def _cut(self, path: str, pieces):  # type: ignore[no-untyped-def]
        for piece in pieces:
            half = len(piece) // 2
            yield piece[:half]
            self.strike("write", path)
            yield piece[half:]

    def strike(self, point: str, path: str) -> None:
        """Fail here, if this is where."""
        inside = os.path.relpath(path, self.run)
        if point != self.point or not self.pattern.match(inside):
            return
        if self.left > 0:
            self.left -= 1
            return
        self.left = sys.maxsize
        (self.run.parent / "struck").touch()
        if self.fault == "disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.fault == "memory":
            raise MemoryError
        os.kill(os.getpid(), signal.Signals[self.fault])


def command(data: Path, run: Path, kind: str) -> list[str]:
    """Return the cases to run."""
    if kind == "dedup":
        words = "--column embedding --id-column id --keep best:id --epsilon .02 --memory 1M -q"
        return ["dedup", str(data), "--out", str(run), *words.split()]
    words = f"-k {N_CLUSTERS} --column embedding --id-column id --device cpu --resume -q"
    words += " --memory 1M" if kind == "disk" else ""
    return ["fit", str(data), "--out", str(run), *words.split()]


def in_fork(arguments: list[str], log: Path, prepare: Callable[[], None] | None = None) -> int:
    """Exit code of a command, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=sys.stderr)
            faiss.omp_set_num_threads(1)
            torch.set_num_threads(1)
            # shells let what they start in the background ignore it
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if prepare is not None:
                prepare()
            code = prcut_main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def contents(run: Path) -> dict[str, str]:
    """Checksums of what a run made; times are left out."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if not path.is_file() or name == "log.txt" or "status/" in name:
            continue
        content = path.read_bytes()
        if path.name in ("result.json", "config.json"):
            content = without_seconds(content)
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def without_seconds(content: bytes) -> bytes:
    record = json.loads(content)
    for part in (record, record.get("result", {}), record.get("description", {}).get("result", {})):
        part.pop("seconds", None)
        part.pop("checksum", None)  # of the same, seconds included
    record.pop("files", None)
    record.pop("checksum", None)  # of all the rest, with the seconds
    return json.dumps(record, sort_keys=True).encode()


def same(expected: dict[str, str], found: dict[str, str], *, is_whole: bool) -> list[str]:
    """Names that differ; of a run that is not whole only those that both have."""
    names = expected.keys() | found.keys() if is_whole else expected.keys() & found.keys()
    return sorted(
        name
        for name in names
        # the one file that changes as a run goes, each time whole
        if expected.get(name) != found.get(name)
        and (is_whole or not name.endswith("checkpoint.json"))
    )


class Trials:
    """Runs that are struck, against one that is not."""

    def __init__(self, place: Path, data: Path, kinds: set[str]) -> None:
        self.place, self.data = place, data
        self.short: list[str] = []
        self.n_done = self.n_missed = 0
        self.expected: dict[str, dict[str, str]] = {}
        for kind in sorted(kinds):
            run = place / f"calm-{kind}" / "run"
            run.parent.mkdir()
            if code := in_fork(command(data, run, kind), run.parent / "log"):
                raise RuntimeError(f"{kind}: exit {code}: {(run.parent / 'log').read_text()}")
            self.expected[kind] = contents(run)

    def strike(self, kind: str, stage: str, pattern: str, point: str, fault: str) -> None:
        """One fault, and the run again."""
        what = f"{stage}, {point}, {fault}"
        for skip in (1, 0):
            home = Path(tempfile.mkdtemp(dir=self.place))
            run, log = home / "run", home / "log"
            arguments = command(self.data, run, kind)
            code = in_fork(arguments, log, Fault(run, pattern, point, fault, skip).arm)
            if (home / "struck").exists():
                break
            shutil.rmtree(home)
        else:
            self.n_missed += 1
            print(f"{what}: there is no such point")
            return
        words = log.read_text()
        wanted = {"SIGKILL": -9, "SIGTERM": 143, "SIGINT": 130}.get(fault, 4)
        if code != wanted:
            self.short.append(f"{what}: exit {code}, not {wanted}: {words[-300:]}")
        if "Traceback" in words:
            self.short.append(f"{what}: a traceback")
        if fault != "SIGKILL" and f"resume with: prcut {arguments[0]}" not in words:
            self.short.append(f"{what}: nothing said of how to go on: {words[-300:]}")
        if differ := same(self.expected[kind], contents(run), is_whole=False):
            self.short.append(f"{what}: {differ[0]} could be seen and was not whole")
        self.finish(what, kind, run, log)
        shutil.rmtree(home)

    def finish(self, what: str, kind: str, run: Path, log: Path) -> None:
        """Run the same command again, which must end as the calm run did."""
        self.n_done += 1
        if code := in_fork(command(self.data, run, kind), log):
            self.short.append(f"{what}: run again, exit {code}: {log.read_text()[-300:]}")
        elif differ := same(self.expected[kind], contents(run), is_whole=True):
            self.short.append(f"{what}: run again, {len(differ)} files differ, as {differ[0]}")
        if left := [path.name for path in run.rglob("*prcut-tmp")]:
            self.short.append(f"{what}: run again, {left[0]} is left")


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--only", nargs="+", default=(), help="kinds of commands")
    args = parser.parse_args()
    chance = random.Random(0)  # noqa: S311
    kinds = {"disk": ON_DISK, "memory": IN_MEMORY, "dedup": OF_DEDUP}
    cases = [
        (kind, stage, pattern, point, fault)
        for kind, stages in kinds.items()
        for stage, pattern in stages.items()
        for point in POINTS
        for fault in FAULTS
        # a process that dies is struck everywhere, one that can still act in the midst of a file
        if (fault == "SIGKILL" or point == "write") and (not args.only or kind in args.only)
    ]
    if args.quick:
        of_stage = itertools.groupby(cases, key=lambda case: case[:2])
        cases = [chance.choice(list(group)) for _, group in of_stage]
        cases = cases if args.only else chance.sample(cases, 10)
    with tempfile.TemporaryDirectory() as folder:
        write_planted(Path(folder) / "data", N_ROWS, N_FEATURES, N_CLUSTERS, n_files=3)
        trials = Trials(Path(folder), Path(folder) / "data", {case[0] for case in cases})
        for case in cases:
            trials.strike(*case)
    print(f"{trials.n_done} runs were struck and run again, {trials.n_missed} points do not exist")
    return verdict(trials.short, "after every fault the run ends with the same files")


if __name__ == "__main__":
    sys.exit(main())
