"""A GPU that is none: CPU tensors that count as another device's, to show mistakes without one.

Torch's fake tensors would do, but in a torch without the device they cannot be copied or indexed,
and a gradient ends the process.
A storage belongs to the device or to the CPU. Numbers are real, so what was computed there can be
compared. As on a GPU, it is an error to mix the two, or to read numbers without a copy; MPS also
refuses float64. Whatever makes the CPU wait for the device is counted.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# the size of what these return is known to the device alone, or they return a number
_WAITING = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "unique", "bincount")


class StandIn:
    """The storages of a device that is not there."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.waits: Counter[str] = Counter()
        # the storages themselves, whose addresses would else be used again
        self._storages: dict[int, Any] = {}

    def holds(self, tensor: Tensor) -> bool:
        return any(part.untyped_storage()._cdata in self._storages for part in _dense_parts(tensor))

    def take(self, tensor: Tensor) -> Tensor:
        if self.device.type == "mps" and tensor.dtype == torch.float64:
            raise TypeError("MPS has no float64")
        for part in _dense_parts(tensor):
            self._storages[part.untyped_storage()._cdata] = part.untyped_storage()
        return tensor

    def is_meant(self, device: Any) -> bool:
        return device is not None and torch.device(device).type == self.device.type


def _dense_parts(tensor: Tensor) -> list[Tensor]:
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor]


class _Calls(TorchFunctionMode):
    """What names a device, or reads numbers."""

    def __init__(self, standin: StandIn) -> None:
        super().__init__()
        self.standin = standin

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return self.standin.device if self.standin.holds(args[0]) else func(*args)
        if func in (Tensor.to, Tensor.cpu):
            return self._move(func, args, kwargs)
        if name in ("numpy", "tolist") and self.standin.holds(args[0]):
            if name == "numpy":
                raise TypeError("numbers of a device cannot be read without a copy")
            self.standin.waits[name] += 1
        if self.standin.is_meant(kwargs.get("device")):
            made = func(*args, **kwargs | {"device": "cpu"})
            return self.standin.take(made)
        return func(*args, **kwargs)

    def _move(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        tensor, *rest = args
        target: Any = "cpu" if func is Tensor.cpu else kwargs.get("device")
        dtype = kwargs.get("dtype", tensor.dtype)
        for one in rest:
            if isinstance(one, Tensor):
                target, dtype = one.device, one.dtype
            elif isinstance(one, torch.device | str):
                target = one
            elif isinstance(one, torch.dtype):
                dtype = one
        result: Tensor = tensor.to(dtype)
        if target is None or self.standin.is_meant(target) == self.standin.holds(tensor):
            return result
        if self.standin.is_meant(target):
            return self.standin.take(result.clone())
        self.standin.waits["cpu"] += 1
        return _Leaving.apply(result)  # type: ignore[no-any-return, no-untyped-call]


class _Leaving(torch.autograd.Function):
    """A copy that the checks of operations let pass."""

    @staticmethod
    def forward(_ctx: Any, tensor: Tensor) -> Tensor:
        copy = torch.empty(tensor.shape, dtype=tensor.dtype)
        if tensor.numel():
            copy.copy_(tensor)
        return copy


class _Operations(TorchDispatchMode):
    """What reaches the kernels, in gradients too."""

    def __init__(self, standin: StandIn) -> None:
        super().__init__()
        self.standin = standin

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        inside = [one for one in given if self.standin.holds(one)]
        # numbers of the CPU may take part, as on a GPU
        outside = [one for one in given if one.ndim and not self.standin.holds(one)]
        if name == "copy_":  # the one operation between devices
            return func(*args, **kwargs)
        if inside and outside:
            raise RuntimeError(f"{func} mixes tensors of {self.standin.device} and of the CPU")
        if inside:
            is_mask = name.startswith("index") and any(one.dtype == torch.bool for one in inside)
            if name.startswith(_WAITING) or is_mask:
                self.standin.waits[name] += 1
        result = func(*args, **kwargs)
        for one in tree_leaves(result) if inside else ():
            if isinstance(one, Tensor):
                self.standin.take(one)
        return result


@contextmanager
def stand_in(name: str) -> Iterator[StandIn]:
    """Let a device of this name be there."""
    standin = StandIn(name)
    with _Calls(standin), _Operations(standin):
        yield standin
