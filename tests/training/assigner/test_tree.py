import pytest
import torch

from prcut import Assigner
from prcut.errors import InvalidInputError
from prcut.training.assigner.tree import LevelAssigner


@torch.inference_mode()
def test_walking_agrees_with_every_level_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    root = Assigner(3, 3, generator=generator)
    first, last = (Assigner(3, k, generator=generator) for k in (4, 2))
    tree = LevelAssigner(root, [first, None, last])
    assert tree.n_clusters == 4 + 1 + 2
    rows = torch.randn(200, 3, generator=generator)
    leaf, confidence = tree.walk(rows)
    for number, row in enumerate(rows):
        probs = root.probs(row[None])[0]
        cluster = int(probs.argmax())
        expected, certainty = [0, 4, 5][cluster], float(probs.max())
        if cluster != 1:
            inside = (first if cluster == 0 else last).probs(row[None])[0]
            expected, certainty = expected + int(inside.argmax()), certainty * float(inside.max())
        assert int(leaf[number]) == expected
        assert float(confidence[number]) == pytest.approx(certainty, rel=1e-5)


def test_children_that_do_not_fit_the_root_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="children"):
        LevelAssigner(Assigner(2, 3), [None])
    with pytest.raises(InvalidInputError, match="n_features"):
        LevelAssigner(Assigner(2, 1), [Assigner(3, 2)])
