"""One run is one line of JSON: what was asked, and what came of it."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from prcut.errors import CorruptFileError, DataWarning
from prcut.runtime.folder import plan_key

__all__ = ["RunRecord", "RunResult", "RunSpec", "append_record", "read_records"]

_FORMAT = 1


@dataclass(frozen=True)
class RunSpec:
    """What one run is asked to do."""

    table: str
    dataset: str
    split: str
    representation: str
    """``"raw"`` pixels, or an encoder of :func:`benchmarks.harness.encoders.embed_once`."""
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


def append_record(path: Path, record: RunRecord) -> None:
    """Add one line, on disk when this returns; a torn line of a killed process goes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[RunRecord]:
    """Return all runs of a file, in its order; none where there is no file."""
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if torn:
        warnings.warn(
            f"the last line of {path} is cut off, as a process was killed while it wrote it; it "
            "is left out.",
            DataWarning,
            stacklevel=2,
        )
    return [_record(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]


def _line(record: RunRecord) -> bytes:
    content = {"format": _FORMAT, **asdict(record)}
    return json.dumps(content, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def _record(line: bytes, where: str) -> RunRecord:
    try:
        content = json.loads(line)
        return RunRecord(RunSpec(**content["spec"]), RunResult(**content["result"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{where} is not a record of a benchmark: {error!r}.") from error
