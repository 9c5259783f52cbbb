import numpy as np
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsClassifier

from prcut.ui.report.projection import learn_projection


def test_rows_that_were_not_anchors_land_among_their_own() -> None:
    rows, labels = make_blobs(600, 20, centers=5, cluster_std=2.0, random_state=0)
    rows = rows.astype(np.float32)
    projection = learn_projection(rows[:200], seed=0)
    coords = projection.place(projection.reduce(rows), np.random.default_rng(0))
    assert coords.shape == (600, 2)
    assert coords.dtype == np.float32
    judge = KNeighborsClassifier(5).fit(coords[:200], labels[:200])
    assert judge.score(coords[200:], labels[200:]) > 0.98
    # anchors stay where they are, and the seed decides
    np.testing.assert_allclose(coords[:200], projection.coords, atol=1e-2)
    again, other = (learn_projection(rows[:200], seed=seed).coords for seed in (0, 1))
    np.testing.assert_array_equal(again, projection.coords)
    assert not np.array_equal(other, projection.coords)
    # a thousand copies of a row near one anchor are a cloud, not a dot
    near = np.repeat(projection.anchors[:1] + 0.5, 1000, axis=0)
    cloud = projection.place(near, np.random.default_rng(1))
    assert cloud.std(0).min() > 0
    assert cloud.std(0).max() < np.ptp(projection.coords, axis=0).max() / 4
