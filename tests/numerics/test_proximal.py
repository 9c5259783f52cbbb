"""Proximal steps: what the gradient of the softmax asks for."""

import pytest
import torch

from prcut.numerics.proximal import proximal_softmax, softmax


def test_proximal_softmax_of_a_loss_that_hardly_changes_has_the_plain_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    slopes = 1e-7 * torch.randn(20, 5, generator=generator, dtype=torch.float64)
    plain, proximal = (
        torch.autograd.grad((slopes * probs(logits)).mean(0).sum(), logits)[0]
        for probs in (softmax, proximal_softmax)
    )
    torch.testing.assert_close(proximal, plain, rtol=1e-4, atol=1e-13)


def test_proximal_softmax_asks_for_the_minimum_of_slope_and_divergence() -> None:
    """Its gradient learns argmin_t g·t + KL(t ‖ p), found here by LBFGS."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    slope = 3 * torch.randn(4, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(proximal_softmax(logits)[0] @ slope, logits)
    free = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    known = logits.detach()[0].log_softmax(0)
    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

    def step() -> float:
        optimizer.zero_grad()
        target = free.softmax(0)
        loss = target @ slope + target @ (free.log_softmax(0) - known)
        loss.backward()
        return loss.item()

    optimizer.step(step)
    found = free.detach().softmax(0)
    torch.testing.assert_close(gradient[0], known.exp() - found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n_clusters", [3, 40])
def test_proximal_softmax_is_a_softmax(n_clusters: int) -> None:
    logits = torch.randn(7, n_clusters, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(proximal_softmax(logits), logits.softmax(1))
