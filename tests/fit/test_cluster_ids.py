import json

import numpy as np

from prcut.fit.update import ClusterIds


def test_positions_are_found_by_id():
    names = ClusterIds(np.array([7, 2, 9]), 10)
    assert names.positions(np.array([2, 9, 7, 3, -1, 100])).tolist() == [1, 2, 0, -1, -1, -1]


def test_a_description_is_read_back():
    names = ClusterIds(np.array([7, 2, 9]), 12)
    again = ClusterIds.parse(json.loads(json.dumps(names.describe())), 3)
    np.testing.assert_array_equal(again.ids, names.ids)
    assert again.n_given == 12
    assert not names.are_first
    assert ClusterIds.parse({}, 3).are_first
