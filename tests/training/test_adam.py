import copy

import pytest
import torch
from torch import nn

from prcut.training.adam import Adam, RMSProp


@pytest.mark.parametrize(
    ("kind", "theirs_kind", "options"),
    [(Adam, torch.optim.Adam, {"fused": True}), (RMSProp, torch.optim.RMSprop, {})],
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch_bit_by_bit(
    kind: type[Adam],
    theirs_kind: type[torch.optim.Optimizer],
    options: dict[str, bool],
    weight_decay: float,
) -> None:
    ours = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    ours[1].bias.requires_grad_(False)  # it never has a gradient
    theirs = copy.deepcopy(ours)
    optimizer = kind(ours.parameters(), weight_decay)
    reference = theirs_kind(theirs.parameters(), weight_decay=weight_decay, **options)
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for rate in (0.1, 0.01, 0.1):
        ours(rows).square().sum().backward()
        optimizer.step(rate)
        reference.zero_grad()
        theirs(rows).square().sum().backward()
        reference.param_groups[0]["lr"] = rate
        reference.step()
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, two)
    assert all(one.grad is None for one in ours.parameters())
    for number, slot in reference.state_dict()["state"].items():
        assert {name: value.tolist() for name, value in optimizer.state[number].items()} == {
            name: value.tolist() for name, value in slot.items()
        }
