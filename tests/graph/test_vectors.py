import numpy as np
import pytest
import scipy.sparse

from prcut.errors import InvalidInputError
from prcut.graph.neighbors import find_neighbors
from prcut.graph.rows import Vectors, as_vectors
from reference import mixture


def test_float32_is_read_in_place_and_strides_are_followed() -> None:
    features = mixture(100)
    assert np.shares_memory(Vectors(features).take(slice(10, 20)), features)
    wide = np.zeros((100, 32), np.float32)
    wide[:, ::2] = features
    for view in (wide[:, ::2], np.asfortranarray(features)):
        found = find_neighbors(view, 5)
        np.testing.assert_array_equal(found.indices, find_neighbors(features, 5).indices)


def test_only_rows_far_from_zero_are_moved_there() -> None:
    features = mixture(50)
    assert as_vectors(features, "euclidean").origin is None
    far = as_vectors(features + 1000, "euclidean")
    np.testing.assert_allclose(far.origin, (features + 1000).mean(0), rtol=1e-5)
    assert abs(far.take(slice(None)).mean(0)).max() < 1e-2
    sparse = as_vectors(scipy.sparse.csr_array(features + 1000), "euclidean")
    assert sparse.origin is None  # or it would be dense
    assert sparse.take(slice(None)).dtype == np.float64


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_cosine_takes_rows_of_length_one_and_of_zeros(form: type) -> None:
    vectors = as_vectors(form(np.array([[3.0, 4.0], [0.0, 0.0]])), "cosine")
    taken = vectors.take(slice(None))
    dense = taken if isinstance(taken, np.ndarray) else taken.toarray()
    np.testing.assert_allclose(dense, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    assert vectors.by_product


def test_chunks_cover_all_rows_once() -> None:
    features = mixture(50)
    starts, chunks = zip(*Vectors(features).chunks(max_rows=16), strict=True)
    assert starts == (0, 16, 32, 48)
    np.testing.assert_array_equal(np.concatenate(chunks), features)


def test_unknown_metrics_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="metric='manhattan' must be 'euclidean', 'cosine'"):
        as_vectors(mixture(5), "manhattan")
