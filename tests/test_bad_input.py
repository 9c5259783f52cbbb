"""Whatever is handed in, the answer is right or one worded error: no traceback, no NaN, no hang."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.pipeline.labels import _array_files, assign_parquet
from prcut.pipeline.outofcore.pair_shards import count_shards
from prcut.runtime.folder import Folder
from prcut.runtime.sources import cut_row_ranges, sample_rows
from prcut.training.assigner.network import Assigner
from prcut.ui.cli.commands import main

QUICK = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning"),
    pytest.mark.timeout(300),
]


def quick(n_clusters: int = 2, **options: Any) -> PRCut:
    chosen = {"n_neighbors": 3, "n_init": 1, "random_state": 0, "device": "cpu", **options}
    return PRCut(n_clusters, **chosen)


def check_fitted(model: PRCut, rows: Any) -> None:
    """Labels of all rows, in range, and probabilities that are some."""
    assert model.labels_.shape == (rows.shape[0],)
    assert model.labels_.min() >= 0
    assert model.labels_.max() < model.n_clusters
    assert np.isfinite(model.objective_)
    probs = model.predict_proba(rows)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-4)
    assert (model.predict(rows) == probs.argmax(1)).all()


# -- the estimator -------------------------------------------------------------------------------

# from denormal to what float32 cannot hold; NaN and infinity among them
NUMBERS = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, 1e-45, -1e-40, 1e-30, 1.0, 3e18, 3e38, np.nan, np.inf, -np.inf]),
    st.integers(-3, 3).map(float),
)


@QUICK
@given(
    rows=arrays(
        st.sampled_from([np.float32, np.float64, np.float16]),
        st.tuples(st.integers(0, 12), st.integers(0, 3)),
        elements=st.one_of(
            st.integers(-3, 3).map(float),
            st.sampled_from([0.0, 6e-8, 1e-3, 6e4, np.nan, np.inf]),
        ),
    ),
    n_clusters=st.integers(-1, 14),
    n_neighbors=st.one_of(st.none(), st.integers(0, 13)),
)
def test_any_table(rows: np.ndarray, n_clusters: int, n_neighbors: int | None) -> None:
    model = quick(n_clusters, n_neighbors=n_neighbors)
    try:
        model.fit(rows)
    except ValueError:  # InvalidInputError is one, and so are scikit-learn's
        return
    check_fitted(model, rows)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # scikit-learn's
@QUICK
@given(rows=arrays(np.float64, (8, 2), elements=NUMBERS))
def test_huge_and_denormal_values(rows: np.ndarray) -> None:
    model = quick()
    try:
        model.fit(rows)
    except ValueError as error:
        if not re.search(r"NaN|infinity|float32|no edges", str(error)):
            raise
        return
    check_fitted(model, rows)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((20, 3)),
        np.full((20, 3), 1e-42, np.float32),
        np.column_stack([np.zeros(20), np.arange(20.0)]),
        np.repeat(np.eye(2), 10, axis=0),
        np.arange(40).reshape(20, 2),
        np.arange(40).reshape(20, 2) % 3 == 0,
        np.arange(40, dtype=np.uint8).reshape(20, 2),
        1e17 * np.arange(40).reshape(20, 2),
        csr_array((20, 3)),
        csr_array(np.eye(20)),
    ],
)
def test_odd_tables_are_clustered(rows: Any) -> None:
    check_fitted(quick(max_steps=20).fit(rows), rows)


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((5, 2)) * 1j,
        np.array([["a", "b"]] * 5),
        np.array([[{}, []]] * 5, dtype=object),
        [[1, 2], [3]],
        np.array(["2020-01-01"] * 4, "M8[D]").reshape(2, 2),
        np.zeros((2, 2, 2)),
        None,
        "rows",
        3e38 * np.arange(10.0).reshape(5, 2),
    ],
)
def test_what_is_no_table_is_refused(rows: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        quick().fit(rows)
    frames = [str(entry.path) for entry in caught.traceback]
    assert not any("site-packages/torch" in name or "faiss" in name for name in frames)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 3)), "X has 3 features, but PRCut is expecting 2"),
        (np.full((3, 2), np.nan), "Input X contains NaN"),
    ],
)
def test_wrong_rows_at_prediction(rows: np.ndarray, message: str) -> None:
    fitted = quick().fit(np.random.default_rng(0).normal(size=(20, 2)))
    for call in (fitted.predict, fitted.predict_proba, fitted.transform, fitted.score):
        with pytest.raises(ValueError, match=message):
            call(rows)


def test_rows_far_from_all_others_have_probabilities() -> None:
    fitted = quick().fit(np.random.default_rng(0).normal(size=(20, 2)))
    for scale in (1e10, 1e30, 3e38):
        rows = np.float32(scale) * np.array([[1, -1], [-1, 1], [1, 0]], np.float32)
        try:
            probs = fitted.predict_proba(rows)
        except InvalidInputError:
            for call in (fitted.predict, fitted.predict_proba, fitted.transform):
                with pytest.raises(InvalidInputError, match=r"row \d is so large"):
                    call(rows)
            continue
        assert np.isfinite(probs).all()
        assert (fitted.predict(rows) == probs.argmax(1)).all()


# -- precomputed graphs --------------------------------------------------------------------------


@QUICK
@given(
    matrix=arrays(
        np.float64,
        st.integers(0, 7).map(lambda n: (n, n)),
        elements=st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, 1e-30, 1e30, -1.0, np.nan, np.inf]),
    ),
    is_symmetric=st.booleans(),
    n_clusters=st.integers(1, 4),
)
def test_any_matrix(matrix: np.ndarray, is_symmetric: bool, n_clusters: int) -> None:
    if is_symmetric:
        matrix = np.fmax(matrix, matrix.T)
    model = quick(n_clusters, affinity="precomputed")
    try:
        model.fit(matrix)
    except ValueError:
        return
    check_fitted(model, matrix)
    edges = matrix - np.diag(np.diag(matrix))
    assert (edges == edges.T).all()
    assert edges.min() >= 0


STAR = np.zeros((9, 9))
STAR[0, 1:] = STAR[1:, 0] = 1
PATHS = np.kron(np.eye(3), np.ones((3, 3)))  # three parts that are not linked
LONELY = np.pad(np.ones((4, 4)), (0, 5))  # five rows without an edge


@pytest.mark.parametrize("solver", ["search", "train"])
@pytest.mark.parametrize("matrix", [STAR, PATHS, LONELY])
def test_stars_parts_and_rows_without_edges(matrix: np.ndarray, solver: str) -> None:
    for n_clusters in (1, 3):
        model = quick(n_clusters, affinity="precomputed", solver=solver, max_steps=20)
        model.fit(csr_array(matrix))
        check_fitted(model, matrix)
    if matrix is PATHS:
        assert model.ratio_cut_ == 0


# -- files and the command line ------------------------------------------------------------------


def line_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code of a command, and its last line on standard error."""
    code = main([str(one) for one in arguments])
    lines = capsys.readouterr().err.splitlines()
    assert not any("Traceback" in line for line in lines)
    return code, lines[-1] if lines else ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((10, 2), np.int64), "expected floats of shape"),
        (np.zeros((10, 2), object), "cannot be read as a .npy file"),
        (np.zeros(10, np.float32), "expected floats of shape"),
        (np.zeros((10, 0), np.float32), "n_features=0"),
        (np.zeros((1, 3), np.float32), "n_samples=1 should be >= --clusters 2"),
        (np.full((10, 2), np.inf), "holds NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_wrong_arrays_by_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "rows.npy", rows, allow_pickle=True)
    code, line = line_of(capsys, "fit", tmp_path / "rows.npy", "-k", 2, "-o", tmp_path / "run")
    assert code == 2
    assert line.startswith("error: ")
    assert message in line


FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("lists", "ids", "message"),
    [
        (pa.array([[1.0, 2.0], [3.0]], FLOATS), ["a", "b"], "holds a list of 1 values"),
        (pa.array([[1.0, 2.0], None], FLOATS), ["a", "b"], "null lists"),
        (pa.array([[1.0, None], [1.0, 2.0]], FLOATS), ["a", "b"], "null values"),
        (pa.array([[], [1.0]], FLOATS), ["a", "b"], "n_features=0"),
        (pa.array([1.0, 2.0]), ["a", "b"], "expected lists of floats"),
        (pa.array([[1.0, np.nan], [1.0, 2.0]], FLOATS), ["a", "b"], "NaN"),
        (pa.array([[1.0, 2.0], [3.0, 4.0]], FLOATS), ["a", None], "null ids"),
    ],
)
def test_wrong_parquet_by_command_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lists: pa.Array,
    ids: list[Any],
    message: str,
) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"e": lists, "id": ids}), tmp_path / "data/0.parquet")
    options = ("--column", "e", "--id-column", "id", "--neighbors", 1, "--n-init", 1)
    out = ("-k", 1, "-o", tmp_path / "run")
    code, line = line_of(capsys, "fit", tmp_path / "data", *out, *options)
    assert (code, line[:7]) in [(2, "error: "), (3, "error: ")], line
    assert message in line


def test_ids_that_are_there_twice_are_kept_as_they_are(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((6, 2)).tolist()
    table = pa.table({"e": pa.array(rows, FLOATS), "id": ["a", "a", "", "é", "a", "\0"]})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data/0.parquet")
    assign_parquet(Assigner(2, 3), str(tmp_path / "data"), tmp_path / "labels", id_column="id")
    written = pq.read_table(tmp_path / "labels/0.parquet")
    assert written["id"].to_pylist() == table["id"].to_pylist()


# -- more than 2³¹ -------------------------------------------------------------------------------


class Endless:
    """A source of more rows than 32 bits count, none of which is stored."""

    n_samples, n_features, dtype = 5 * 2**32 + 3, 2, np.dtype(np.float32)
    fingerprint = "endless"
    group_starts = np.arange(0, 5 * 2**32 + 3, 2**20, dtype=np.int64)

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start < stop <= self.n_samples
        assert stop - start <= 2**23
        return np.full((stop - start, 2), start / self.n_samples, np.float32)

    def read_ids(self, start: int, stop: int) -> None:
        """None."""


def test_rows_beyond_31_bits_are_counted() -> None:
    source = Endless()
    cuts = cut_row_ranges(source, 2**21)
    assert cuts.dtype == np.int64
    assert cuts[0] == 0
    assert cuts[-1] == source.n_samples
    assert (np.diff(cuts) > 0).all()
    sample = sample_rows(source, 500, seed=0)
    assert len(sample) >= 500
    assert sample.max() > 0.9  # some from the end
    files = _array_files(source)
    assert files[-1].stop == source.n_samples
    assert all(one.stop == other.start for one, other in pairwise(files))
    assert count_shards(2**40, 768, 4) * 2**30 >= 2**40 * 768 * 8


def test_bytes_beyond_31_bits_are_read(tmp_path: Path) -> None:
    shape = 2**31 + 8, 1
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with (tmp_path / "large.npy").open("wb") as file:  # a hole, which takes no room on the disk
        file.write(start)
        file.seek(len(start) + 2**31 + 6)
        file.write(b"\x07\x09")
    folder = Folder(tmp_path)
    assert folder.read_array("large.npy", 2**31 + 5)[:, 0].tolist() == [0, 7, 9]
    assert folder.map_array("large.npy")[-2:, 0].tolist() == [7, 9]
