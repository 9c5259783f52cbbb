"""Records of runs that never were, for the tests of the harness."""

from dataclasses import replace
from typing import Any

from benchmarks.harness.records import RunRecord, RunResult, RunSpec

SPEC = RunSpec("table3", "mnist", "train", "raw", 15, "faiss_kmeans", 0)
VERSIONS = {"python": "3.11.7", "numpy": "2.0.0", "faiss-cpu": "1.9.0"}
MACHINE = {"cpu": "abacus", "cpus": "2", "threads": "1", "platform": "Linux x86_64"}
RESULT = RunResult(
    "done",
    data="0123456789abcdef",
    n_samples=60000,
    n_features=784,
    n_clusters=10,
    acc=0.7,
    nmi=0.6,
    ari=0.5,
    ratio_cut=4.0,
    normalized_cut=0.4,
    used_clusters=10,
    noise_share=0.0,
    wall_seconds=3.0,
    cpu_seconds=5.0,
    graph_seconds=20.0,
    peak_rss_mb=400.0,
    versions=VERSIONS,
    machine=MACHINE,
)


def record(method: str = "faiss_kmeans", seed: int = 0, **changes: Any) -> RunRecord:
    """A record with some fields of its spec or result changed."""
    for_spec = {n: changes.pop(n) for n in list(changes) if n in RunSpec.__dataclass_fields__}
    spec = replace(SPEC, method=method, seed=seed, **for_spec)
    versions = dict(VERSIONS)
    if method.startswith("prcut"):
        versions |= {"prcut": "0.1.0", "prcut source": "aaaa"}
    return RunRecord(spec, replace(RESULT, **{"versions": versions, **changes}))
