import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

from prcut.errors import InvalidInputError
from prcut.fit import score_representation


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    rows = load_digits().data[:500].astype(np.float32)
    return rows[:, rows.std(0) > 0]


@pytest.mark.costly("scores four representations")
def test_noise_and_shuffled_columns_lower_the_score(digits: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    noisy = digits + rng.normal(size=digits.shape) * digits.std()
    shuffled = rng.permuted(digits, axis=0)
    scores = [score_representation(rows, 10) for rows in (digits, noisy, shuffled)]
    assert scores[0] > scores[1] > scores[2]
    assert scores[0] > 0.6
    assert -0.1 < scores[2] < 0.3
    assert scores[0] == score_representation(digits, 10)  # a seed decides


def test_many_columns_are_permuted_also_where_they_are_sparse(
    digits: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prcut.fit.representation._MAX_ROTATED", 8)
    dense = score_representation(digits, 10)
    assert dense > 0.4
    assert score_representation(csr_array(digits), 10) == pytest.approx(dense, abs=0.1)


def test_few_columns_and_few_rows() -> None:
    rows = np.random.default_rng(0).random((30, 1))
    assert -1 <= score_representation(rows, 3, n_neighbors=5) <= 1
    with pytest.raises(InvalidInputError, match="n_clusters"):
        score_representation(rows, 0)
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        score_representation(rows, 3, n_neighbors=30)
