"""A softmax with proximal gradients, and the plain softmax that is fast over few columns."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_SMALLEST = 4e-18


def proximal_softmax(logits: Tensor) -> Tensor:
    r"""Compute a softmax whose gradient is a whole proximal step of each row, not its slope.

    With :math:`g_i` the slope of the loss at the probabilities :math:`p_i` of a row, times the
    number n of rows in the batch, the target of the row is

    .. math:: t_i = \arg\min_t g_i·t + D_{KL}(t ‖ p_i) ∝ p_i e^{-g_i},

    and the logits receive the gradient of the cross-entropy with that target,
    :math:`(p_i − t_i)/n`. Where slopes are small it equals the plain gradient. Where the plain
    gradient vanishes because a row is sure of a wrong cluster (softmax multiplies each slope by
    :math:`p`), it is as large as that of the cross-entropy. Both are zero at the same points.

    >>> logits = torch.tensor([[9.0, 0.0]], requires_grad=True)  # sure of the first of two
    >>> plain = torch.autograd.grad(20 * logits.softmax(1)[0, 0], logits)[0]
    >>> proximal = torch.autograd.grad(20 * proximal_softmax(logits)[0, 0], logits)[0]
    >>> [round(gradient[0, 0].item(), 3) for gradient in (plain, proximal)]
    [0.002, 1.0]
    """
    probs: Tensor = _ProximalSoftmax.apply(logits)  # type: ignore[no-untyped-call]
    return probs


class _ProximalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        probs = softmax(logits)
        ctx.save_for_backward(logits, probs)
        return probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        logits: Tensor
        probs: Tensor
        logits, probs = ctx.saved_tensors
        n_rows = len(grad)
        target = softmax(logits - n_rows * grad)
        return (probs - target) / n_rows


def softmax(logits: Tensor) -> Tensor:
    """Compute the softmax of each row over the clusters, the second dimension.

    No probability is below 4e-18: products of smaller ones are subnormal, for which a processor
    takes many times as long.
    """
    probs: Tensor = _Softmax.apply(logits)  # type: ignore[no-untyped-call]
    return probs


class _Softmax(torch.autograd.Function):
    # over fewer columns than a vector register holds, torch's softmax on the CPU is scalar: with
    # 10 columns the loss takes twice as long as with 32, unless the softmax runs down the columns

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.is_narrow = logits.ndim == 2 and logits.shape[1] < 16
        probs = logits.T.softmax(0).T if ctx.is_narrow else logits.softmax(1)
        ctx.save_for_backward(probs.clamp_min_(_SMALLEST))
        return probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (probs,) = ctx.saved_tensors
        slope = torch._softmax_backward_data
        if ctx.is_narrow:
            return slope(grad.T, probs.T, 0, probs.dtype).T
        return slope(grad, probs, 1, probs.dtype)
