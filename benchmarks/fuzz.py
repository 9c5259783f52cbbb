"""Spoilt and forged files, a million of them, to every reader.

    python benchmarks/fuzz.py                        # 1,000,000 executions
    python benchmarks/fuzz.py --quick                # 20,000, about a minute
    python benchmarks/fuzz.py --reader model --count 5000
    python benchmarks/fuzz.py --reader model --only 1234      # one again, with its traceback
    python benchmarks/fuzz.py --reader json --atheris 100000  # guided by coverage

The last needs ``pip install atheris``.

A small valid artefact of every kind is spoilt: bytes flipped, cut off or added, fields of JSON and
of the headers of .npy and safetensors files replaced, numbers inside arrays changed. In three of
four cases checksums and sizes are made to fit again, as a forger would. Each execution follows from
the seed and its number.

Checked: every execution ends in a right result or in a PRCutError; nothing else is raised, no NaN
goes through, no pickle is opened, nothing is read from outside the folder, none takes more than 20
seconds, or 1.5 GB more than it began with, and the process survives.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from _fuzz_mutations import mutated
from _verdict import verdict

LIMIT_SECONDS, LIMIT_BYTES = 20, 1_500_000_000
# executions of a process
_PART = 20_000
# reader, first execution, number of executions
Work = tuple[str, int, int]
# a library that neither raises nor returns is ended by the parent
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


def child(work: list[Work], seed: int, folder: Path, only: bool = False) -> None:
    """Do the work; a line of standard output for every part, of standard error for every step."""
    from _fuzz_readers import READERS

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _raise_too_slow)
    watch = Watch(folder)
    places = {reader: folder / reader / "artefact" for reader, _, _ in work}
    for reader, place in places.items():
        place.parent.mkdir()
        READERS[reader].make(place)
        READERS[reader].read(place)  # it is valid, and everything is imported
    _limit_memory()
    for reader, first, count in work:
        read = partial(READERS[reader].read, places[reader])
        numbers = range(first, first + count)
        result = _executions(reader, seed, numbers, places[reader], read, watch, only)
        print(json.dumps({"reader": reader, "count": count, **result}), flush=True)


def _executions(
    reader: str,
    seed: int,
    numbers: range,
    place: Path,
    read: Callable[[], None],
    watch: Watch,
    only: bool,
) -> dict[str, Any]:
    from _fuzz_readers import READERS
    from prcut.errors import PRCutError

    files, start = Files(place), time.monotonic()
    found: Counter[str] = Counter()
    example: dict[str, str] = {}
    ends: Counter[str] = Counter()
    for number in numbers:
        sys.stderr.write(f"{number}\n")
        rng = random.Random(f"{reader} {seed} {number}")  # noqa: S311
        spoil(files, rng)
        what = None
        signal.alarm(LIMIT_SECONDS)
        try:
            with watch.on():
                read()
            ends["result"] += 1
        except (PRCutError, FileNotFoundError) as error:  # the second names a file that is missing
            ends[type(error).__name__] += 1
            if not str(error).strip() or len(str(error)) > 20_000:
                what = f"{type(error).__name__} of {len(str(error))} characters"
        except (Exception, TooSlow) as error:
            what = f"{type(error).__name__} in {_where(error)}: {str(error)[:160]}"
            if only:
                traceback.print_exc(file=sys.stdout)
        signal.alarm(0)
        what = what or (f"seen: {watch.seen[0]}" if watch.seen else None)
        if what:
            key = what.partition(": ")[0]
            found[key] += 1
            example.setdefault(key, f"--only {number}: {what}")
        _tidy(place, files, READERS[reader].writes)
    seconds = time.monotonic() - start
    return {"found": found, "example": example, "ends": ends, "seconds": seconds}


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


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _memory_folder() -> str | None:
    """Return a folder whose files are in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


# -- all processes ---------------------------------------------------------------------------


class Outcome:
    """What was found with one reader."""

    def __init__(self) -> None:
        self.n_done, self.seconds = 0, 1e-9
        self.found: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.example: dict[str, str] = {}

    def note(self, key: str, example: str, count: int = 1) -> None:
        """Record a finding."""
        self.found[key] += count
        self.example.setdefault(key, example)


def run(work: list[Work], seed: int) -> dict[str, Outcome]:
    """Do all the work in processes; an execution that ends its process is a finding."""
    outcomes = {reader: Outcome() for reader, _, _ in work}
    left = [
        (reader, first + start, min(_PART, count - start))
        for reader, first, count in work
        for start in range(0, count, _PART)
    ]
    while left:
        n_parts, number, died = _process(left, seed, outcomes)
        left = left[n_parts:]
        if died:
            reader, first, count = left[0]
            outcomes[reader].note(f"the process died ({died})", f"--only {number}: died, {died}")
            done = number - first + 1
            outcomes[reader].n_done += done
            left[0] = reader, first + done, count - done
    return outcomes


def _process(
    work: list[Work], seed: int, outcomes: dict[str, Outcome]
) -> tuple[int, int, str | None]:
    """Parts done, the last execution begun, and how the process died if it did."""
    command = [sys.executable, __file__, "--seed", str(seed), "--child", json.dumps(work)]
    with (
        tempfile.TemporaryFile("w+") as log,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryDirectory(dir=_memory_folder()) as folder,
    ):
        command += ["--folder", folder]
        process = subprocess.Popen(command, stdout=out, stderr=log)
        size, changed = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if (now := os.fstat(log.fileno()).st_size) != size:
                size, changed = now, time.monotonic()
            elif time.monotonic() - changed > SILENT_SECONDS:
                process.kill()
        log.seek(0)
        out.seek(0)
        results = [json.loads(line) for line in out]
        for result in results:
            outcome = outcomes[result["reader"]]
            outcome.n_done += result["count"]
            outcome.seconds += result["seconds"]
            outcome.ends.update(result["ends"])
            for key, times in result["found"].items():
                outcome.note(key, result["example"][key], times)
        text = log.read()
        if process.returncode == 0:
            return len(results), 0, None
        numbers = [line for line in text.splitlines() if line.isdigit()]
        if not numbers:
            raise SystemExit(f"the readers could not be started:\n{text}")
        return len(results), int(numbers[-1]), f"status {process.returncode}"


def guided(reader: str, count: int, folder: Path) -> None:
    """Coverage-guided executions: the bytes that atheris makes become a file, resealed."""
    import atheris

    with atheris.instrument_imports(include=["prcut", "json", "numpy.lib"]):
        from _fuzz_readers import READERS

        from prcut.errors import PRCutError  # isort: skip
    warnings.simplefilter("ignore")
    place = folder / "artefact"
    READERS[reader].make(place)
    files = Files(place)
    names = sorted(files.whole)

    def execute(data: bytes) -> None:
        if not data:
            return
        name, content = names[data[0] % len(names)], bytes(data[1:])
        files.write({name: content, **files.resealed(name, content)})
        try:
            READERS[reader].read(place)
        except PRCutError:
            pass
        finally:
            _tidy(place, files, READERS[reader].writes)

    corpus = folder / "corpus"
    corpus.mkdir()
    for number, name in enumerate(names):
        (corpus / str(number)).write_bytes(bytes([number]) + files.whole[name])
    limits = [f"-runs={count}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], str(corpus), *limits], execute)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--reader")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--atheris", type=int, metavar="COUNT")
    options = parser.parse_args()
    if not (options.child or options.folder or options.atheris or options.only is not None):
        return report(options)
    if not options.folder:
        # in a process of its own, which may end without tidying up
        with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
            command = [sys.executable, *sys.argv, "--folder", folder]
            return subprocess.call(command)
    folder = Path(options.folder)
    if options.atheris:
        guided(options.reader, options.atheris, folder)
    elif options.child:
        child(json.loads(options.child), options.seed, folder)
    else:
        child([(options.reader, options.only, 1)], options.seed, folder, only=True)
    return 0


def report(options: argparse.Namespace) -> int:
    """Run everything, and print what was found."""
    from _fuzz_readers import READERS

    total = options.count or (20_000 if options.quick else 1_000_000)
    fractions = {name: reader.fraction for name, reader in READERS.items()}
    if options.reader:
        fractions = {options.reader: 1.0}
    scale = total / sum(fractions.values())
    short, n_done = [], 0
    print(f"{'reader':12} {'executions':>10} {'per second':>10}  ended in")
    # a reader after the other, where it takes long, to see how far it is
    work = [(name, options.first, -int(-scale * fraction)) for name, fraction in fractions.items()]
    for parts in [work] if options.quick else [[one] for one in work]:
        for reader, outcome in run(parts, options.seed).items():
            n_done += outcome.n_done
            ends = ", ".join(f"{name} {times:,}" for name, times in outcome.ends.most_common())
            speed = outcome.n_done / outcome.seconds
            print(f"{reader:12} {outcome.n_done:10,} {speed:10,.0f}  {ends}", flush=True)
            for key, times in outcome.found.most_common():
                short.append(f"{reader}: {times:,} times, {outcome.example[key]}")
                print(f"    {short[-1]}", flush=True)
    return verdict(short, f"{n_done:,} executions ended in a result or a worded error")


if __name__ == "__main__":
    sys.exit(main())
