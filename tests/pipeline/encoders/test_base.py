"""What encoders share: images of any size and colour, and tokens without padding."""

import numpy as np

from encoder_samples import images, library
from prcut.pipeline.encoders import base


def test_images_of_several_sizes_become_one() -> None:
    library("PIL")
    given = [images(1, 8)[0], images(1, 5)[0], images(1, 6)[0, ..., 0]]
    assert base.resize(given, 4).shape == (3, 4, 4, 3)
    np.testing.assert_array_equal(base.resize(given, 8)[0], given[0])
