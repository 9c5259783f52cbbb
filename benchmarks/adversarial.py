"""Attacks on what the documents promise: each held or broke, with the measured figure.

    python benchmarks/adversarial.py            # 40 fits for outliers, and runs on disk
    python benchmarks/adversarial.py --quick    # about a minute

Attacks on numbers are repeated with five seeds; the worst is shown. Exits 1 if one broke.
"""

import argparse
import errno
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

from _shared import Table, keep, verdict
from prcut import Assigner, PRCut, build_graph
from prcut.errors import CorruptFileError, DataWarning, InvalidInputError
from prcut.fit.config import FitConfig
from prcut.numerics.objective import ClusterCost
from prcut.runs.labels import assign_parquet
from prcut.runs.run import fit_run
from prcut.runtime.folder import Folder
from prcut.search.fragments import CoarseGraph
from prcut.search.sweep import cluster_sums, sweep
from prcut.training.assigner.saved import save_model

SEEDS = range(5)
# rows of a labelling that may change when units do: rounding decides ties
LEAST_ARI = 0.99
ALPHA = 0.05
FAR = (1e9, 1e12)
DIGITS = load_digits().data[:1000]
FAST: dict[str, Any] = {"effort": "fast"}


class Outcome(NamedTuple):
    """Whether a promise held, and what was measured."""

    held: bool
    figure: str


def refused(call: Callable[[], object], kind: type[Exception], words: str) -> Outcome:
    """Hold where a call is refused in these words."""
    try:
        call()
    except kind as error:
        return Outcome(words in str(error), str(error).splitlines()[0][-90:])
    except BaseException as error:
        return Outcome(False, f"{type(error).__name__}: {str(error)[:80]}")
    return Outcome(False, "accepted")


def worst(values: list[float], least: float, what: str) -> Outcome:
    return Outcome(min(values) >= least, f"{what} {min(values):.4f}, at least {least:g}")


# -- 1: data that change in place ------------------------------------------------------------------


def write_vectors(path: Path, rows: np.ndarray) -> Path:
    """Write uncompressed vectors: other values of the same shape take as many bytes."""
    if path.suffix == ".npy":
        np.save(path, rows)
    else:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        pq.write_table(pa.table({"x": vectors}), path, compression="none", use_dictionary=False)
    return path


def rewritten(name: str, folder: Path) -> Outcome:
    rows = DIGITS.astype(np.float32)
    path = write_vectors(folder / name, rows)
    assigner = Assigner(64, 3)
    assign_parquet(assigner, path, folder / "labels", device="cpu")
    rows[501] += 1
    write_vectors(path, rows)
    again = partial(assign_parquet, assigner, path, folder / "labels", device="cpu")
    return refused(again, InvalidInputError, "another fingerprint")


def other_encoder(folder: Path) -> Outcome:
    model = PRCut(10, random_state=0, **FAST).fit(DIGITS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unit = DIGITS / np.linalg.norm(DIGITS, axis=1, keepdims=True)
        for name, rows in (("like", DIGITS[:300]), ("unlike", unit)):
            before = len(caught)
            assign_parquet(model.assigner_, rows.astype(np.float32), folder / name, device="cpu")
            n_warned = len(caught) - before
            if n_warned != (name == "unlike"):
                return Outcome(False, f"{n_warned} warnings of rows {name} those of the fit")
    return Outcome(True, "vectors of other norms warned of, like ones not")


# -- 2 to 5: numbers ------------------------------------------------------------------------------


def agreement(first: PRCut, second: PRCut) -> float:
    """Return the ARI of two fits, or 0 where their objectives differ."""
    same = np.isclose(first.objective_, second.objective_, rtol=0.01)
    return float(adjusted_rand_score(first.labels_, second.labels_)) if same else 0.0


def units_of_weights(folder: Path) -> Outcome:  # noqa: ARG001
    found = []
    for seed in SEEDS:
        fit = partial(PRCut(10, random_state=seed, **FAST).fit, DIGITS)
        weights = np.random.default_rng(seed).uniform(0.1, 10, len(DIGITS))
        plain = PRCut(10, random_state=seed, **FAST).fit(DIGITS, sample_weight=weights)
        unit = (1e-30, 1e15)[seed % 2]
        found.append(agreement(plain, fit(sample_weight=weights * unit)))
    return worst(found, LEAST_ARI, "lowest ARI")


def units_of_edges(folder: Path) -> Outcome:  # noqa: ARG001
    links = build_graph(DIGITS, 15).to_scipy().astype(np.float64)
    found = []
    for seed in SEEDS:
        plain, other = (
            PRCut(10, random_state=seed, **FAST).fit(DIGITS, graph=links * unit)
            for unit in (1.0, (1e100, 1e-300)[seed % 2])
        )
        found.append(agreement(plain, other))
    return worst(found, LEAST_ARI, "lowest ARI")


def far_from_zero(folder: Path) -> Outcome:  # noqa: ARG001
    found = []
    for seed in SEEDS:
        fitted, new = np.split(np.random.default_rng(seed).permutation(len(DIGITS)), [800])
        near = PRCut(10, random_state=seed, **FAST).fit(DIGITS[fitted])
        far = FAR[seed % 2]
        model = PRCut(10, random_state=seed, **FAST).fit(DIGITS[fitted] + far)
        same = adjusted_rand_score(near.labels_, model.labels_) > LEAST_ARI
        expected, given = near if same else model, DIGITS[new] + far
        labels = expected.predict(DIGITS[new] if same else given)
        found.append(float(adjusted_rand_score(labels, model.predict(given))))
        found.append(float((model.predict(DIGITS[fitted] + far) == model.labels_).mean()))
    return worst(found, 0.97, "lowest agreement of predict")


def outliers(is_heavy: bool, n_fits: int, folder: Path) -> Outcome:  # noqa: ARG001
    taken = []
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        sample = partial(rng.standard_t, 2) if is_heavy else partial(rng.normal, 0, 1)
        model = PRCut(8, outliers=ALPHA, random_state=seed, **FAST).fit(sample((200, 5)))
        p_value = model.score_outliers(sample((4000, 5))).p_value
        taken.append(float((p_value <= ALPHA).mean()))
    mean, error = np.mean(taken), np.std(taken) / np.sqrt(n_fits)
    figure = f"{mean:.4f} ± {error:.4f} of new rows in {n_fits} fits, promised {ALPHA}"
    return Outcome(bool(mean - error <= ALPHA), figure)


def own_labels(folder: Path) -> Outcome:  # noqa: ARG001
    found = []
    for seed in SEEDS:
        for n_samples, n_clusters, centers in ((2000, 20, 12), (480, 20, 12), (480, 20, 1)):
            rows, _ = make_blobs(n_samples, centers=centers, random_state=seed)
            model = PRCut(n_clusters, random_state=seed, **FAST).fit(rows)
            found.append(float((model.predict(rows) == model.labels_).mean()))
            if n_samples == 2000:
                probs = model.predict_proba(rows)
                found.append(float((probs.argmax(1) == model.labels_).mean()))
    return worst(found, 0.99, "least fraction of own labels")


def calibration(folder: Path) -> Outcome:  # noqa: ARG001
    """Compare confidence with how often another fit has the row in the matching cluster."""
    found = []
    for seed in SEEDS:
        first, second = (
            PRCut(10, random_state=one, **FAST).fit(DIGITS) for one in (seed, seed + 9)
        )
        table = np.zeros((10, 10))
        np.add.at(table, (first.labels_, second.labels_), 1)
        same = table.argmax(1)[first.labels_] == second.labels_
        sure = first.predict_proba(DIGITS).max(1)
        found.append(1 - abs(float(sure.mean()) - float(same.mean())))
    return worst(found, 0.85, "1 - |mean confidence - agreement of another fit|,")


# -- 6 to 9: files, attributes, absurd input ------------------------------------------------------


def second_start(folder: Path) -> Outcome:
    def chunks() -> Iterator[bytes]:
        yield b"first"
        script = f"from prcut.runtime.folder import Folder; Folder({str(folder)!r}).start({{}})"
        subprocess.run([sys.executable, "-c", script], check=True)
        yield b"second"

    try:
        Folder(folder).write_bytes("a", chunks())
    except OSError as error:
        return Outcome(False, f"the live writer died: {error}")
    return Outcome(Folder(folder).read_bytes("a") == b"firstsecond", "the live writer ended")


def full_disk(folder: Path) -> Outcome:
    first = Assigner(4, 3)
    save_model(folder / "model", first, {})
    kept = (folder / "model/model.safetensors").read_bytes()
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch("prcut.runtime.folder._sync", side_effect=full), suppress(OSError):
        save_model(folder / "model", Assigner(4, 3), {})
    is_kept = (folder / "model/model.safetensors").read_bytes() == kept
    rest = [path.name for path in (folder / "model").iterdir() if path.name[0] == "."]
    return Outcome(is_kept and not rest, f"old model kept: {is_kept}; rests: {len(rest)}")


def traversal(folder: Path) -> Outcome:
    names = ("../x", "/etc/passwd", "a/b", "..", "a\0b", "a\\b", "", ".x", "x" * 300)
    for name in names:
        for call in (Folder(folder).read_bytes, Folder(folder).exists, Folder(folder).__truediv__):
            outcome = refused(partial(call, name), CorruptFileError, "is not a plain file name")
            if not outcome.held:
                return Outcome(False, f"{name[:20]!r}: {outcome.figure}")
    return Outcome(True, f"{len(names)} names that lead out are refused")


def stale(folder: Path) -> Outcome:  # noqa: ARG001
    rows, _ = make_blobs(240, centers=3, random_state=0)
    model = PRCut((2, 4), store_probs=True, random_state=0, **FAST)
    model.fit(rows, cannot_link=[[0, 1]])
    model.set_params(store_probs=False, n_clusters=3).partial_fit(rows)
    found = [name for name in ("probs_", "objective_", "merge_tree_") if hasattr(model, name)]
    return Outcome(not found, f"left after partial_fit: {', '.join(found) or 'nothing'}")


def absurd_class(value: float, words: str, folder: Path) -> Outcome:  # noqa: ARG001
    y = np.array([value, *[-1] * 98, 0])
    return refused(lambda: PRCut(3).fit(DIGITS[:100], y), InvalidInputError, words)


def altered_description(folder: Path) -> Outcome:
    PRCut(3, random_state=0, **FAST).fit(DIGITS[:300]).save(folder)
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"balance_weight_": ', '"balance_weight_": 1'))
    return refused(lambda: PRCut.load(folder), CorruptFileError, "is altered")


def stored_zeros(folder: Path) -> Outcome:  # noqa: ARG001
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import adversarial"
    run = subprocess.run(
        [sys.executable, "-c", f"{script}; adversarial.sweep_zeros()"], check=False
    )
    return Outcome(run.returncode == 0, f"exit status {run.returncode}")


def sweep_zeros() -> None:
    """Search a graph with stored zeros, which the compiled loops must never see."""
    links = csr_array(np.ones((60, 60)))
    links.data[:] = 0
    labels = np.arange(60) % 3
    coarse = CoarseGraph(links, np.ones(60))
    cost = ClusterCost.of(60, 1.0, 3, balance_weight=1.0)
    try:
        sweep(coarse, labels, cost, cluster_sums(coarse, labels, 3))
    except InvalidInputError:
        sys.exit(0)
    sys.exit(1)


def ray_folder(folder: Path) -> Outcome:  # noqa: ARG001
    try:
        import ray
    except ImportError:
        return Outcome(True, "Ray is not installed")
    from prcut.runtime.ray_engine import RayEngine

    no_address = mock.patch.dict(os.environ)
    with no_address, mock.patch.object(ray, "is_initialized", return_value=False):
        os.environ.pop("RAY_ADDRESS", None)
        with mock.patch.object(ray, "init") as init:
            RayEngine()
    made = init.call_args.kwargs.get("_temp_dir")
    mode = oct(stat.S_IMODE(Path(made).stat().st_mode)) if made else None
    return Outcome(mode == "0o700", f"storage of mode {mode}" if made else "storage in /tmp/ray")


# -- what held before, and must go on holding -----------------------------------------------------


def dtypes_and_scales(folder: Path) -> Outcome:  # noqa: ARG001
    # whole numbers have equal distances, of which rounding makes one the shorter
    rows = DIGITS + np.random.default_rng(0).normal(0, 0.5, DIGITS.shape)
    plain = PRCut(10, random_state=0, **FAST).fit(rows)
    found = []
    for scale in (1e-10, 1e17):
        other = PRCut(10, random_state=0, **FAST).fit(rows * scale)
        found.append(float(adjusted_rand_score(plain.labels_, other.labels_)))
    return worst(found, LEAST_ARI, "lowest ARI")


def html(folder: Path) -> Outcome:
    rows, attack = DIGITS[:200], "</script><script>alert(1)</script>"
    model = PRCut(3, random_state=0, **FAST).fit(rows)
    model.report(folder / "report.html", rows, texts=[attack] * len(rows))
    return Outcome(attack not in (folder / "report.html").read_text(), "markup in texts is escaped")


def weights_on_disk(folder: Path) -> Outcome:
    """Fit blocks on disk with weights in two units, and with each row as often as it counts."""
    rows, classes = make_blobs(3000, centers=6, n_features=8, random_state=0)
    rows = rows.astype(np.float32)
    weights = np.random.default_rng(0).integers(1, 4, len(rows)).astype(float)
    found = {}
    for name, kept, unit in (("one", rows, 1.0), ("other", rows, 1e-20), ("repeated", None, None)):
        repeated = np.repeat(np.arange(len(rows)), weights.astype(int))
        used = rows[repeated] if kept is None else kept
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(used.ravel()), 8)
        columns = {"x": vectors} | ({} if unit is None else {"w": weights * unit})
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        column = None if unit is None else "w"
        config = FitConfig.of("default", 6, n_neighbors=15, weight_column=column)
        run = folder / name
        fit_run(path, run, config, memory=2**16, column="x", device="cpu")
        labels = PRCut.load(run).labels_
        found[name] = (
            labels if unit is not None else labels[np.unique(repeated, return_index=True)[1]]
        )
    scores = {name: adjusted_rand_score(classes, labels) for name, labels in found.items()}
    figure = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
    return Outcome(min(scores.values()) > LEAST_ARI, f"ARI with the blobs: {figure}")


def attacks(is_quick: bool) -> Iterator[tuple[str, str, Callable[[Path], Outcome]]]:
    n_fits = len(SEEDS) if is_quick else 40
    yield "1", "Parquet rewritten in place", partial(rewritten, "a.parquet")
    yield "1", ".npy rewritten in place", partial(rewritten, "a.npy")
    yield "1", "vectors of another encoder", other_encoder
    yield "2", "units of sample_weight", units_of_weights
    yield "2", "units of edges", units_of_edges
    yield "3", "float64 rows at 1e9 and 1e12", far_from_zero
    yield "4", "outliers of few Gaussian rows", partial(outliers, False, n_fits)
    yield "4", "outliers of few t2 rows", partial(outliers, True, n_fits)
    yield "5", "labels of the fit from predict", own_labels
    yield "5", "calibration of predict_proba", calibration
    yield "6", "a second start beside a live writer", second_start
    yield "7", "attributes of an earlier fit", stale
    yield "8", "a class of 10^12", partial(absurd_class, 1e12, "renumber them")
    yield "8", "a class of infinity", partial(absurd_class, np.inf, "whole numbers")
    yield "8", "an altered config.json", altered_description
    yield "8", "stored zeros in the kernels", stored_zeros
    yield "9", "Ray's storage", ray_folder
    yield "", "disk full while saving", full_disk
    yield "", "names that lead out of a folder", traversal
    yield "", "scales of the rows", dtypes_and_scales
    yield "", "markup in texts", html
    if not is_quick:
        yield "", "weights in blocks on disk", weights_on_disk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    warnings.simplefilter("ignore", DataWarning)
    torch.set_num_threads(1)
    table, broke = Table("item", "attack", "outcome", "measured"), []
    for item, name, attack in attacks(is_quick):
        with tempfile.TemporaryDirectory() as folder:
            held, figure = attack(Path(folder))
        table.add(item, name, "held" if held else "**broke**", figure)
        broke += [] if held else [f"{name}: {figure}"]
    if not is_quick:
        keep("adversarial", table)
    return verdict(broke, "every attack was withstood")


if __name__ == "__main__":
    sys.exit(main())
