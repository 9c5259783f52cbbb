"""Spoilt and forged files, a million of them, to every reader.

    python benchmarks/fuzz.py                        # 1,000,000 executions
    python benchmarks/fuzz.py --quick                # 20,000, some three minutes
    python benchmarks/fuzz.py --reader model --count 5000
    python benchmarks/fuzz.py --reader model --only 1234      # one again, with its traceback

A small valid artefact of every kind is spoilt: bytes flipped, cut off or added, fields of JSON and
of the headers of .npy and safetensors files replaced, numbers inside arrays changed. In three of
four cases checksums and sizes are made to fit again, as a forger would. Each execution follows from
the seed and its number.

Checked: every execution ends in a right result or in a PRCutError; nothing else is raised, no NaN
goes through, no pickle is opened, nothing is read from outside the folder, none takes more than 20
seconds, or 1.5 GB more than it began with, and the process survives.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from _fuzz_mutations import mutated
from _shared import options_of, verdict

LIMIT_SECONDS, LIMIT_BYTES = 20, 1_500_000_000
# executions of a process
PART = 20_000
# after which a process ends that is silent
SILENT_SECONDS = 120


class TooSlow(BaseException):
    """An execution took longer than it may."""


class Files:
    """The files of an artefact, to be spoilt and put back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = sorted(path for path in folder.rglob("*") if path.is_file())
        self.whole = {str(path.relative_to(folder)): path.read_bytes() for path in names}
        self.names = sorted(self.whole)
        self._digest = {name: hashlib.sha256(data).hexdigest() for name, data in self.whole.items()}
        self._records = {
            name: json.loads(content)
            for name, content in self.whole.items()
            if name.endswith(".json")
        }
        self._changed: set[str] = set()

    def write(self, content: dict[str, bytes | None]) -> None:
        """Put content into files; None removes one."""
        for name, data in content.items():
            path = self._folder / name
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
            self._changed.add(name)

    def resealed(self, name: str, content: bytes) -> dict[str, bytes | None]:
        """Return the records of a changed file with its new size and checksum."""
        old = self._digest[name]
        new = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        fitted: dict[str, bytes | None] = {}
        for record, value in self._records.items():
            if old.encode() in self.whole[record]:
                fitted[record] = json.dumps(_resealed(value, old, new)).encode()
        return fitted

    def restore(self) -> None:
        """Put the artefact back as it was."""
        for name in self._changed:
            (self._folder / name).write_bytes(self.whole[name])
        self._changed.clear()


def _resealed(value: Any, old: str, new: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resealed(one, old, new) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("sha256") == old:
        return {**value, **new}
    return {key: _resealed(one, old, new) for key, one in value.items()}


def spoil(files: Files, rng: random.Random) -> None:
    name = rng.choice(files.names)
    if rng.random() < 0.01:
        files.write({name: None})
        return
    content = mutated(name, files.whole[name], rng)
    records = files.resealed(name, content) if rng.random() < 0.75 else {}
    files.write({name: content, **records})


# -- one process -----------------------------------------------------------------------------


class Watch:
    """What is seen of the interpreter while a reader runs: pickles, programs, files opened."""

    def __init__(self, allowed: Path) -> None:
        self._allowed, self._is_on = str(allowed), False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch this."""
        self.seen.clear()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_on:
            return
        if event in ("pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"):
            self.seen.append(event)
        elif event == "open" and isinstance(arguments[0], str):
            path, mode = arguments[0], arguments[1]
            if mode and set(mode) & set("wax+") and not path.startswith(self._allowed):
                self.seen.append(f"open {path} to write")


def child(reader: str, seed: int, numbers: range, folder: Path, show: bool) -> None:
    """Spoil and read; print a finding as a line of JSON, at the end how executions ended.

    The file ``at`` has the number of the execution that runs, in case it ends the process.
    """
    from _fuzz_readers import READERS
    from prcut.errors import PRCutError

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _raise_too_slow)
    watch = Watch(folder)
    make, read, _, writes = READERS[reader]
    place = folder / "artefact"
    make(place)
    read(place)  # it is valid, and everything is imported
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    files = Files(place)
    ends: Counter[str] = Counter()
    for number in numbers:
        (folder / "at").write_text(str(number))
        spoil(files, random.Random(f"{reader} {seed} {number}"))  # noqa: S311
        what = None
        signal.alarm(LIMIT_SECONDS)
        # a library that neither raises nor returns
        faulthandler.dump_traceback_later(SILENT_SECONDS, exit=True)
        try:
            with watch.on():
                read(place)
            ends["result"] += 1
        except (PRCutError, FileNotFoundError) as error:  # the second names a file that is missing
            ends[type(error).__name__] += 1
            if not str(error).strip() or len(str(error)) > 20_000:
                what = f"{type(error).__name__} of {len(str(error))} characters"
        except (Exception, TooSlow) as error:
            what = f"{type(error).__name__} in {_where(error)}: {str(error)[:160]}"
            if show:
                traceback.print_exc()
        signal.alarm(0)
        what = what or (f"seen: {watch.seen[0]}" if watch.seen else None)
        if what:
            print(json.dumps({"finding": what, "number": number}), flush=True)
        _tidy(place, files, writes)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"ends": ends}), flush=True)


def _tidy(place: Path, files: Files, writes: bool) -> None:
    files.restore()
    for path in place.rglob("*") if writes else ():  # what a reader has made
        if path.is_file() and str(path.relative_to(place)) not in files.whole:
            path.unlink()


def _where(error: BaseException) -> str:
    """Return the last line of prcut that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if "prcut" in frame.filename and "_fuzz" not in frame.filename
    ]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def _raise_too_slow(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise TooSlow(f"more than {LIMIT_SECONDS} s")


# -- all processes ---------------------------------------------------------------------------


def run(reader: str, seed: int, first: int, count: int, *, show: bool = False) -> list[str]:
    """Make executions in processes, and print how they ended; one that ends its process is found.

    Returns the findings, one for each line of code, with the number of its first execution.
    """
    # files in memory, where there are such
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    start, stop = time.monotonic(), first + count
    ends: Counter[str] = Counter()
    found: dict[str, list[str]] = {}
    while first < stop:
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            numbers = first, min(first + PART, stop)
            given = [reader, str(seed), *map(str, numbers), folder, "show" if show else ""]
            command = [sys.executable, __file__, "--child", *given]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            for line in map(json.loads, done.stdout.splitlines()):
                ends.update(line.get("ends", {}))
                if what := line.get("finding"):
                    example = f"{reader}: --only {line['number']}: {what}"
                    found.setdefault(what.partition(": ")[0], []).append(example)
            first = numbers[1]
            if done.returncode:
                at = Path(folder) / "at"
                if not at.exists():
                    raise SystemExit(f"{reader} could not be started")
                example = f"{reader}: --only {at.read_text()}: died, status {done.returncode}"
                found.setdefault("died", []).append(example)
                first = int(at.read_text()) + 1
    listed = ", ".join(f"{name} {times:,}" for name, times in ends.most_common())
    rate = count / (time.monotonic() - start)
    print(f"{reader:12} {count:10,} {rate:10,.0f}  {listed}", flush=True)
    short = [f"{len(examples):,} times, {examples[0]}" for examples in found.values()]
    print("".join(f"    {line}\n" for line in short), end="", flush=True)
    return short


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        reader, seed, first, stop, folder, show = sys.argv[2:]
        child(reader, int(seed), range(int(first), int(stop)), Path(folder), bool(show))
        return 0
    from _fuzz_readers import READERS

    parser = options_of(__doc__, "20,000 executions")
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one execution of the reader, with its traceback")
    given = parser.parse_args()
    if given.only is not None:
        return bool(run(given.reader, given.seed, given.only, 1, show=True))
    total = given.count or (20_000 if given.quick else 1_000_000)
    fractions = {name: reader.fraction for name, reader in READERS.items()}
    if given.reader:
        fractions = {given.reader: 1.0}
    scale = total / sum(fractions.values())
    short = []
    print(f"{'reader':12} {'executions':>10} {'per second':>10}  ended in")
    for name, fraction in fractions.items():
        short += run(name, given.seed, 0, -int(-scale * fraction))
    return verdict(short, f"{total:,} executions ended in a result or a worded error")


if __name__ == "__main__":
    sys.exit(main())
