import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsClassifier

from prcut.errors import InvalidInputError
from prcut.ui.report.projection import learn_projection


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(1500, 20, centers=5, cluster_std=2.0, random_state=0)
    return rows.astype(np.float32), labels


def test_rows_that_were_not_anchors_land_among_their_own(
    blobs: tuple[np.ndarray, np.ndarray],
) -> None:
    rows, labels = blobs
    projection = learn_projection(rows[:300], seed=0)
    assert len(projection.anchors) == 300
    coords = projection.place(projection.reduce(rows), np.random.default_rng(0))
    assert coords.shape == (1500, 2)
    assert coords.dtype == np.float32
    judge = KNeighborsClassifier(5).fit(coords[:300], labels[:300])
    assert judge.score(coords[300:], labels[300:]) > 0.98


def test_anchors_stay_where_they_are_and_others_do_not_pile_up(
    blobs: tuple[np.ndarray, np.ndarray],
) -> None:
    rows, _ = blobs
    projection = learn_projection(rows, n_anchors=200, seed=0)
    reduced = projection.anchors
    placed = projection.place(reduced, np.random.default_rng(1))
    np.testing.assert_allclose(placed, projection.coords, atol=1e-2)
    # a thousand copies of a row near one anchor are a cloud, not a dot
    near = np.repeat(reduced[:1] + 0.5, 1000, axis=0)
    cloud = projection.place(near, np.random.default_rng(1))
    assert cloud.std(0).min() > 0
    assert cloud.std(0).max() < np.ptp(projection.coords, axis=0).max() / 4


def test_the_seed_decides(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    rows = blobs[0][:200]

    def coords(seed: int) -> np.ndarray:
        projection = learn_projection(rows, n_anchors=100, seed=seed)
        return projection.place(projection.reduce(rows), np.random.default_rng(seed))

    np.testing.assert_array_equal(coords(0), coords(0))
    assert not np.array_equal(coords(0), coords(1))


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((1, 3)),
        np.arange(6.0).reshape(3, 2),
        np.zeros((50, 4)),  # all the same
        np.random.default_rng(0).normal(size=(40, 1)),  # one column
        np.random.default_rng(0).normal(size=(20, 500)),  # more columns than rows
    ],
)
def test_odd_shapes_have_coords_too(rows: np.ndarray) -> None:
    projection = learn_projection(rows)
    coords = projection.place(projection.reduce(rows), np.random.default_rng(0))
    assert coords.shape == (len(rows), 2)
    assert np.isfinite(coords).all()


def test_no_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"shape \(0, 3\)"):
        learn_projection(np.zeros((0, 3)))
