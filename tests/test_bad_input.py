"""Whatever is handed in, the answer is right or one worded error: no traceback, no NaN, no hang."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.runs.labels import _array_files
from prcut.runtime.folder import Folder
from prcut.runtime.sources import cut_row_ranges, sample_rows

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

# denormal, far apart, near the end of float32, and no numbers
ODD = [float(np.float32(value)) for value in (1e-45, 1e-30, 3e18, 3e38, np.nan, np.inf)]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # scikit-learn's
@QUICK
@given(
    rows=arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(0, 12), st.integers(0, 3)),
        elements=st.one_of(st.integers(-3, 3).map(float), st.sampled_from(ODD)),
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


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((20, 3)),
        np.full((20, 3), 1e-42, np.float32),
        np.column_stack([np.zeros(20), np.arange(20.0)]),
        np.repeat(np.eye(2), 10, axis=0),
        np.arange(40).reshape(20, 2),
        np.arange(40, dtype=np.uint8).reshape(20, 2),
        1e17 * np.arange(40).reshape(20, 2),
        csr_array(np.eye(20)),
    ],
)
def test_odd_tables_are_clustered(rows: Any) -> None:
    check_fitted(quick(max_steps=20).fit(rows), rows)


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
