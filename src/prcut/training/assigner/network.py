"""The assigner: a network that turns a row into cluster logits.

Its ``probs`` are their softmax. Initial weights come from the generator given; without one, from
torch's.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrizations

from prcut.errors import InvalidInputError, check_positive_int


class Assigner(nn.Module):
    """Linear map or multi-layer perceptron from features to cluster logits.

    Parameters
    ----------
    n_features, n_clusters : int
    hidden : sequence of int
        Widths of the hidden layers, each followed by a GELU; none gives a linear assigner, the
        paper's choice for pretrained representations. With hidden layers the first and the last
        layer are weight-normalised, as in the paper.
    bottleneck : int, optional
        Width of one more linear layer before the last; its activations are the reduced
        representation that :meth:`represent` returns.
    n_heads : int
        Output layers on one body, which are trained together until the best is kept; the logits
        then have shape (n_samples, n_clusters, n_heads).
    weight_norm : bool
        False leaves the normalisation out.
    generator : torch.Generator, optional
        Source of the initial weights.

    Examples
    --------
    >>> assigner = Assigner(784, 10, hidden=(512, 512), bottleneck=16)
    >>> rows = torch.zeros(3, 784)
    >>> assigner(rows).shape, assigner.represent(rows).shape
    (torch.Size([3, 10]), torch.Size([3, 16]))
    >>> bool(assigner.probs(rows).sum(1).allclose(torch.ones(3)))
    True
    """

    def __init__(
        self,
        n_features: int,
        n_clusters: int,
        hidden: Sequence[int] = (),
        bottleneck: int | None = None,
        *,
        n_heads: int = 1,
        weight_norm: bool = True,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_features = check_positive_int("n_features", n_features)
        self.n_clusters = check_positive_int("n_clusters", n_clusters)
        self.hidden = tuple(check_positive_int("hidden", width) for width in hidden)
        self.bottleneck = (
            None if bottleneck is None else check_positive_int("bottleneck", bottleneck)
        )
        self.n_heads = check_positive_int("n_heads", n_heads)
        n_logits = self.n_clusters * self.n_heads
        widths = [self.n_features, *self.hidden, *filter(None, [self.bottleneck]), n_logits]
        layers = [_linear(*ends, generator) for ends in pairwise(widths)]
        layers[0] = _InputLinear(layers[0])
        self.weight_norm = weight_norm
        if self.hidden and weight_norm:
            parametrizations.weight_norm(layers[0])
            parametrizations.weight_norm(layers[-1])
        body: list[nn.Module] = []
        for layer in layers[: len(self.hidden)]:
            body += [layer, nn.GELU()]
        self.body = nn.Sequential(*body, *layers[len(self.hidden) : -1])
        self.head = layers[-1]

    def __reduce__(self) -> tuple[Any, ...]:
        # weight-normalised layers cannot be pickled; keep_vars keeps the very parameters that an
        # optimizer, pickled together with the assigner, refers to
        sizes = self.n_features, self.n_clusters, self.hidden, self.bottleneck
        options = {"n_heads": self.n_heads, "weight_norm": self.weight_norm}
        return _rebuild, (sizes, self.state_dict(keep_vars=True), self.training, options)

    def standardize(self, origin: Tensor, scale: float) -> None:
        """Read features as ``(features - origin) / scale`` from now on.

        A learning rate then means the same in every unit of measurement. One number scales all
        columns, because the graph's distances give all columns equal weight.
        """
        self._input.origin.copy_(origin)
        self._input.scale.fill_(scale)

    def divide_columns(self, scales: np.ndarray | None) -> None:
        """Read raw features from now on; so far they were divided by ``scales``, if any."""
        if scales is not None:
            layer, by = self._input, torch.from_numpy(scales).to(self._input.origin)
            layer.origin.mul_(by)
            layer.scale = layer.scale * by

    def move_origin(self, far: np.ndarray | None) -> None:
        """Read raw features from now on; so far ``far``, if any, was subtracted from them.

        Subtracting two float32 rows in turn keeps more digits than subtracting their sum.
        """
        if far is not None:
            origin = self._input.origin
            self._input.origin = torch.stack([torch.from_numpy(far).to(origin), origin])

    @property
    def far_origin(self) -> np.ndarray | None:
        """The row of :meth:`move_origin`, subtracted before float64 rows become float32."""
        origin = self._input.origin
        return origin[0].cpu().numpy() if origin.ndim == 2 else None

    @property
    def column_scales(self) -> np.ndarray | None:
        """The units of the columns, up to a factor; None where all are equal."""
        scale = self._input.scale
        return scale.cpu().numpy() if scale.ndim else None

    @property
    def standard_rows(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and deviation of the fitted rows; None where they were not measured."""
        origin, scale = self._input.origin, self._input.scale
        if not origin.any() and bool((scale == 1).all()):
            return None
        far = origin.double().cpu().reshape(-1, self.n_features).sum(0)
        return far.numpy(), scale.double().cpu().numpy()

    @property
    def _input(self) -> "_InputLinear":
        layer = self.body[0] if len(self.body) else self.head
        assert isinstance(layer, _InputLinear)  # noqa: S101
        return layer

    def fold(self, basis: Tensor, origin: Tensor, scale: float) -> "Assigner":
        """Return an assigner of the features whose coordinates in a basis this one reads.

        ``basis`` has shape (n_features, n_columns); this assigner reads
        ``(features - origin) / scale @ basis``.
        """
        folded = Assigner(len(basis), self.n_clusters, self.hidden, self.bottleneck)
        folded.standardize(origin, scale)
        folded.to(basis.device)
        first, *others = _layers(self)
        weights = [first.weight @ basis.T, *(layer.weight for layer in others)]
        with torch.no_grad():
            for old, weight, new in zip([first, *others], weights, _layers(folded), strict=True):
                new.bias.copy_(old.bias)
                # a weight-normalised layer takes lengths and directions from the assigned value
                value = weight.detach().clone()
                new.weight = value if hasattr(new, "parametrizations") else nn.Parameter(value)
        return folded

    def keep_heads(self, kept: Tensor) -> None:
        """Drop all heads except those at these positions."""
        for module in self.head.modules():
            for name, value in module.named_parameters(recurse=False):
                chosen = take_heads(value.data, self.n_clusters, kept)
                setattr(module, name, nn.Parameter(chosen))
        self.n_heads = len(kept)

    @property
    def width(self) -> int:
        """Number of activations of a row in the widest layer."""
        return max(self.n_clusters, *self.hidden, 1)

    @property
    def is_finite(self) -> bool:
        """Whether the logits are finite: not with NaN, a scale of 0, or weights of length 0."""
        weight = next(self.parameters())
        # 0 times NaN or infinity is NaN: a row of zeros tests every weight
        with torch.inference_mode():
            logits = self(torch.zeros(1, self.n_features, dtype=weight.dtype, device=weight.device))
        return bool(logits.isfinite().all())

    def forward(self, features: Tensor) -> Tensor:
        """Return logits, shape (n_samples, n_clusters), for dense or sparse CSR features."""
        logits: Tensor = self.head(self.represent(features))
        return logits if self.n_heads == 1 else logits.unflatten(1, (self.n_clusters, -1))

    def represent(self, features: Tensor) -> Tensor:
        """Return the input of the last layer: the bottleneck's activations, where there is one."""
        if features.shape[-1:] != (self.n_features,):
            raise InvalidInputError(
                f"features have shape {tuple(features.shape)}, "
                f"expected (n_samples, n_features) with n_features={self.n_features}."
            )
        representation: Tensor = self.body(features)
        return representation

    def probs(self, features: Tensor) -> Tensor:
        """Return cluster probabilities, shape (n_samples, n_clusters)."""
        return self(features).softmax(1)  # type: ignore[no-any-return]


def take_heads(values: Tensor, n_clusters: int, kept: Tensor) -> Tensor:
    """Return the entries of some heads; the first dimension is that of the logits.

    The heads of a cluster are adjacent, so that a softmax over few clusters still uses whole vector
    registers.

    >>> take_heads(torch.arange(6), 2, torch.tensor([0, 2])).tolist()  # three heads
    [0, 2, 3, 5]
    """
    by_cluster: Tensor = values.unflatten(0, (n_clusters, -1))
    return by_cluster[:, kept.to(values.device)].flatten(0, 1)


def _layers(assigner: Assigner) -> list[nn.Linear]:
    return [layer for layer in assigner.modules() if isinstance(layer, nn.Linear)]


def _rebuild(
    sizes: tuple[Any, ...], state: dict[str, Tensor], is_training: bool, options: dict[str, Any]
) -> Assigner:
    assigner = Assigner(*sizes, **options)
    assigner.load_state_dict(state, assign=True)
    return assigner.train(is_training)


class _Linear(nn.Linear):
    """Linear layer that does not draw its weights twice or import torch's symbolic shapes."""

    def reset_parameters(self) -> None:
        """Leave the weights to :func:`_linear`."""


class _InputLinear(_Linear):
    """Linear layer on ``(features - origin) / scale``, for dense or sparse CSR rows.

    Origin and scale are applied to the weights, not to the rows, which stay sparse.
    """

    origin: Tensor
    scale: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.register_buffer("origin", torch.zeros(layer.in_features))
        self.register_buffer("scale", torch.ones(()))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *options: Any) -> None:
        # one scale of all columns, or one of each; one origin, or a far one too
        width = self.origin.shape[-1:]
        if (saved := state.get(f"{prefix}scale")) is not None and saved.shape == width:
            self.scale = torch.ones(width)
        if (saved := state.get(f"{prefix}origin")) is not None and saved.shape == (2, *width):
            self.origin = torch.zeros(2, *width)
        super()._load_from_state_dict(state, prefix, *options)

    def forward(self, features: Tensor) -> Tensor:
        weight, origin = self.weight / self.scale, self.origin
        if origin.ndim == 2:
            features, origin = (features - origin[0]).to(weight.dtype), origin[1]
        bias = self.bias - weight @ origin
        if features.layout != torch.sparse_csr:
            return nn.functional.linear(features, weight, bias)
        product = nn.functional.embedding_bag(
            features.col_indices(),
            weight.T,
            features.crow_indices(),
            mode="sum",
            per_sample_weights=features.values(),
            include_last_offset=True,
        )
        return product + bias


def _linear(n_in: int, n_out: int, generator: Generator | None) -> _Linear:
    """Make a linear layer with torch's default distribution, drawn from ``generator``."""
    layer = _Linear(n_in, n_out)
    bound = 1 / math.sqrt(n_in)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
