import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_blobs

from prcut import PRCut
from prcut.errors import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


@pytest.fixture(scope="module")
def digits():
    data = load_digits(n_class=6)
    return data.data.astype(np.float32), data.target


def fitted(rows, n_clusters, **options):
    given = {"random_state": 0, "max_steps": 100, "device": "cpu", **options}
    return PRCut(n_clusters, **given).fit(rows)


def test_an_unchanged_world_changes_no_row(digits):
    rows, _ = digits
    model = fitted(rows, 6)
    before, n_old = model.labels_.copy(), 600
    assert model.cluster_ids_.tolist() == list(range(6))
    model.update(rows[n_old:], rows[:n_old], old_ids=before[:n_old])
    assert model.changes_ == ()
    np.testing.assert_array_equal(model.labels_[:n_old], before[:n_old])
    assert (model.labels_ == before).mean() > 0.995


def test_classes_come_and_go_and_ids_are_not_reused(tmp_path):
    rows, classes = make_blobs(1200, centers=10 * np.eye(6), cluster_std=1.5, random_state=2)
    week = np.arange(len(rows)) % 3
    first, second = (week == 0) & (classes != 5), (week == 1) & (classes != 0)
    third, later = week == 2, (week == 2) & (classes != 0)
    model = fitted(rows[first], 5)
    ids = model.cluster_ids_[model.labels_]
    zero = np.bincount(ids[classes[first] == 0]).argmax()

    # the class 5 appears; 0 is still among the earlier rows
    model.update(rows[second], rows[first], old_ids=ids)
    assert [(one.kind, one.cluster) for one in model.changes_] == [("birth", 5)]
    assert model.n_clusters_ == 6
    new_ids = model.cluster_ids_[model.labels_]
    assert (new_ids[: len(ids)] == ids).mean() > 0.97
    of_second = new_ids[len(ids) :]
    assert (of_second == 5)[classes[second] == 5].mean() > 0.9

    # what was saved goes on: now 0 is gone
    model.save(tmp_path / "model")
    model = PRCut.load(tmp_path / "model")
    assert model.cluster_ids_.tolist() == list(range(6))
    model.update(rows[later], rows[second], old_ids=of_second)
    assert [(one.kind, one.cluster) for one in model.changes_] == [("death", zero)]
    left = [one for one in range(6) if one != zero]
    assert model.cluster_ids_.tolist() == left

    # and when it comes back, it is a new cluster with a new id
    old_ids = model.cluster_ids_[model.labels_[-later.sum() :]]
    model.update(rows[third], rows[later], old_ids=old_ids)
    assert [(one.kind, one.cluster) for one in model.changes_] == [("birth", 6)]
    model.save(tmp_path / "again")
    again = PRCut.load(tmp_path / "again")
    assert again.cluster_ids_.tolist() == [*left, 6]
    np.testing.assert_array_equal(model.predict(rows[:20]), again.predict(rows[:20]))


def test_the_kept_rows_stand_for_the_earlier_ones(digits):
    rows, _ = digits
    model = fitted(rows[:700], 6, outliers=0.05)
    before = model.clusters_.copy()
    assert model.update(rows[700:]) is model
    assert len(model.labels_) == len(rows)
    assert (model.clusters_[:700] == before).mean() > 0.98
    assert 0 < (model.labels_ == -1).mean() < 0.1
    assert model.probabilities_.shape == (len(rows),)
    assert model.predict(rows[:5]).shape == (5,)
    model.update(csr_array(rows[:50]))  # sparse rows join dense ones
    assert len(model.labels_) == len(rows) + 50


def test_rows_are_explained_also_after_save_pickle_and_update(digits, tmp_path):
    rows, _ = digits
    model = fitted(rows, 6)
    asked = np.array([0, 11, 500])
    found = model.explain(asked)
    np.testing.assert_array_equal(found.cluster, model.clusters_[asked])
    assert all("neighbours are in cluster" in text for text in found.explain())
    model.save(tmp_path / "model")
    for again in (PRCut.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert again.explain(asked).explain() == found.explain()
    assert len(model.update(rows[:10]).explain(len(rows) + 9).explain()) == 1


def test_what_cannot_be_done_is_said(digits, tmp_path):
    rows, _ = digits
    model = fitted(rows[:200], 3)
    with pytest.raises(InvalidInputError, match="the fit had n_samples=200 rows"):
        model.explain([200])
    with pytest.raises(InvalidInputError, match="numbers of rows"):
        model.explain([0.5])
    with pytest.raises(InvalidInputError, match="an integer for each of the 50 rows"):
        model.update(rows, rows[:50], old_ids=[1, 2])
    with pytest.raises(InvalidInputError, match="stickiness=1"):
        model.update(rows, stickiness=1)
    model.save(tmp_path / "model")
    loaded = PRCut.load(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="pass earlier rows as X_old_sample"):
        loaded.update(rows)
    loaded.partial_fit(rows[:200])
    with pytest.raises(InvalidInputError, match="explain needs a fit"):
        loaded.explain([0])
    links = np.exp(-np.abs(np.subtract.outer(rows[:80, 20], rows[:80, 20])))
    precomputed = fitted(links, 2, affinity="precomputed")
    assert len(precomputed.explain(range(80)).cluster) == 80
    with pytest.raises(InvalidInputError, match="update needs features"):
        precomputed.update(links)


def test_a_weighted_fit_is_not_updated_as_if_rows_counted_once(digits, tmp_path):
    rows, _ = digits
    weights = np.where(np.arange(len(rows)) % 2, 1.0, 3.0)
    model = PRCut(6, random_state=0, max_steps=100, device="cpu")
    model.fit(rows, sample_weight=weights)
    model.save(tmp_path)
    for weighted in (model, PRCut.load(tmp_path)):
        with pytest.raises(InvalidInputError, match="sample_weight"):
            weighted.update(rows[:50], rows)
    model.fit(rows).update(rows[:50])
    assert len(model.labels_) == len(rows) + 50
