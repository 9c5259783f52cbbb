"""What a fitted estimator says of rows."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut


@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
def test_labels_probabilities_and_score_agree() -> None:
    rows, _ = make_blobs(150, 3, centers=3, cluster_std=0.4, random_state=0)
    model = PRCut(3, random_state=0).fit(rows)
    probs = model.predict_proba(rows)
    np.testing.assert_array_equal(probs.argmax(1), model.predict(rows))
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.transform(rows).argmax(1), model.predict(rows))
    assert model.score(rows) > 0.9
    assert PRCut(1).fit(rows).score(rows) == pytest.approx(0.0)
