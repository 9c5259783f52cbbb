"""What encoders share: images of any size and colour, and tokens without padding."""

import numpy as np
import torch

from encoder_samples import images, library
from prcut.pipeline.encoders import base


def test_grey_images_get_three_channels() -> None:
    grey = images(1)[0, ..., 0]
    np.testing.assert_array_equal(base.to_color(grey)[..., 2], grey)
    assert base.to_color(grey).shape == (8, 8, 3)


def test_images_of_several_sizes_become_one() -> None:
    library("PIL")
    given = [images(1, 8)[0], images(1, 5)[0], images(1, 6)[0, ..., 0]]
    assert base.resize(given, 4).shape == (3, 4, 4, 3)
    np.testing.assert_array_equal(base.resize(given, 8)[0], given[0])


def test_padding_is_not_averaged() -> None:
    tokens = torch.tensor([[[1.0], [3.0], [9.0]], [[5.0], [9.0], [9.0]], [[9.0], [9.0], [9.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert base.mean_token(tokens, mask).tolist() == [[2.0], [5.0], [0.0]]
