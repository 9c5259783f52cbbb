import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

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
    with pytest.raises(InvalidInputError, match="an integer for each of the 50 rows"):
        model.update(rows, rows[:50], old_ids=[1, 2])
    model.save(tmp_path / "model")
    loaded = PRCut.load(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="pass earlier rows as X_old_sample"):
        loaded.update(rows)
    links = np.exp(-np.abs(np.subtract.outer(rows[:80, 20], rows[:80, 20])))
    precomputed = fitted(links, 2, affinity="precomputed")
    assert len(precomputed.explain(range(80)).cluster) == 80
    with pytest.raises(InvalidInputError, match="update needs features"):
        precomputed.update(links)
    model.fit(rows, sample_weight=np.where(np.arange(len(rows)) % 2, 1.0, 3.0))
    model.save(tmp_path / "weighted")
    for weighted in (model, PRCut.load(tmp_path / "weighted")):
        with pytest.raises(InvalidInputError, match="sample_weight"):
            weighted.update(rows[:50], rows)
