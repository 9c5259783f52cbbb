"""One run is one line of JSON: what was asked, and what came of it."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from prcut.errors import CorruptFileError, DataWarning
from prcut.runtime.folder import check_format, plan_key

__all__ = [
    "RunRecord",
    "RunResult",
    "RunSpec",
    "append_record",
    "drop_records",
    "parse_result",
    "parse_spec",
    "read_records",
]

_FORMAT = 1


@dataclass(frozen=True)
class RunSpec:
    """What one run is asked to do."""

    table: str
    dataset: str
    split: str
    representation: str
    """``"raw"`` pixels, one of :mod:`benchmarks.harness.representations`, or an encoder of
    :func:`prcut.curate.embed.embed`."""
    n_neighbors: int
    """Neighbours of the graph that measures cuts and that graph methods are given."""
    method: str
    seed: int
    n_rows: int | None = None
    """So many first rows of the split; None takes all."""
    time_limit: float = 600.0
    """Seconds; not part of the key, since what is done within one limit is done."""

    @property
    def key(self) -> str:
        """The same for the same run."""
        return plan_key({n: value for n, value in asdict(self).items() if n != "time_limit"})

    @property
    def subject(self) -> str:
        """The data set and, unless it is raw, the representation."""
        is_raw = self.representation == "raw"
        return self.dataset if is_raw else f"{self.dataset}, {self.representation}"


@dataclass(frozen=True)
class RunResult:
    """What came of a run; None where it did not get that far."""

    status: str
    """``"done"``, ``"timed out"`` or ``"failed"``."""
    message: str = ""
    data: str | None = None
    """Digest of rows and labels."""
    n_samples: int | None = None
    n_features: int | None = None
    n_clusters: int | None = None
    acc: float | None = None
    nmi: float | None = None
    ari: float | None = None
    ratio_cut: float | None = None
    normalized_cut: float | None = None
    cut: float | None = None
    imbalance: float | None = None
    used_clusters: int | None = None
    noise_share: float | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    graph_seconds: float | None = None
    """Neighbours and graph, measured when they were computed."""
    peak_rss_mb: float | None = None
    """Peak of the whole process of the run, the data and Python itself included."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of Python, numpy and the method's packages, and a digest as ``prcut source``."""
    machine: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """A run and its result."""

    spec: RunSpec
    result: RunResult


# -- the file ------------------------------------------------------------------------------------


def append_record(path: Path, record: RunRecord) -> None:
    """Add one line, on disk when this returns; a torn line of a killed process goes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        if torn := content[content.rfind(b"\n") + 1 :]:
            if _is_json(torn):
                file.write(b"\n")
            else:
                file.truncate(len(content) - len(torn))
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[RunRecord]:
    """Return all runs of a file, in its order; none where there is no file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    lines = content.split(b"\n")
    if (torn := lines.pop()) and _is_json(torn):
        lines.append(torn)
    elif torn:
        warnings.warn(
            f"the last line of {path} is cut off, as a process was killed while it wrote it; it "
            "is left out.",
            DataWarning,
            stacklevel=2,
        )
    return [_record(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]


def drop_records(path: Path, keys: Iterable[str]) -> int:
    """Take the runs of these keys out of a file; return how many there were."""
    unwanted, records = set(keys), read_records(path)
    kept = [record for record in records if record.spec.key not in unwanted]
    if len(kept) < len(records):
        written = path.with_suffix(f".{os.getpid()}.tmp")
        written.write_bytes(b"".join(map(_line, kept)))
        written.replace(path)
    return len(records) - len(kept)


def parse_spec(text: str) -> RunSpec:
    """Read a spec from JSON."""
    return _checked(RunSpec, _json(text.encode(), "the spec"), "the spec")


def parse_result(text: str) -> RunResult:
    """Read a result from JSON."""
    return _checked(RunResult, _json(text.encode(), "the result"), "the result")


def _line(record: RunRecord) -> bytes:
    content = {"format": _FORMAT, **asdict(record)}
    return json.dumps(content, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _json(line: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{where} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CorruptFileError(f"{where} is a {type(content).__name__}, expected an object.")
    return content


def _record(line: bytes, where: str) -> RunRecord:
    content = _json(line, where)
    if not isinstance(content.get("format"), int):
        raise CorruptFileError(f"{where} has no format; it is not a record of a benchmark.")
    check_format(where, content["format"], _FORMAT)
    parts = content.get("spec"), content.get("result")
    if not isinstance(parts[0], dict) or not isinstance(parts[1], dict):
        raise CorruptFileError(f"{where} lacks its spec or its result.")
    result = _checked(RunResult, parts[1], where)
    if result.status not in ("done", "timed out", "failed"):
        raise CorruptFileError(f"{where} has status={result.status!r}, which does not exist.")
    if result.status == "done" and None in (result.acc, result.nmi, result.wall_seconds):
        raise CorruptFileError(f"{where} is done, but has no acc, nmi or wall_seconds.")
    return RunRecord(_checked(RunSpec, parts[0], where), result)


_Part = TypeVar("_Part", RunSpec, RunResult)


def _checked(kind: type[_Part], content: Mapping[str, Any], where: str) -> _Part:
    """Make a dataclass from JSON; every field must have the declared type."""
    declared = {one.name: str(one.type) for one in fields(kind)}
    if unknown := sorted(set(content) - set(declared)):
        raise CorruptFileError(f"{where} has fields that do not exist: {', '.join(unknown)}.")
    for name, value in content.items():
        if not _fits(value, declared[name]):
            raise CorruptFileError(f"{where} has {name}={value!r}, expected {declared[name]}.")
    try:
        return kind(**content)
    except TypeError as error:
        raise CorruptFileError(f"{where} is not complete: {error}.") from error


def _fits(value: Any, declared: str) -> bool:
    if declared.endswith(" | None"):
        return value is None or _fits(value, declared.removesuffix(" | None"))
    if declared == "float":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    if declared == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if declared == "dict[str, str]":
        return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    return isinstance(value, str)
