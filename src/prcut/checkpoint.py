"""Checkpoints of a training run: safetensors and JSON, whole or not there.

``checkpoint.json`` names the one file of tensors that is valid, with its checksum, and is written
after it: a run killed at any moment leaves the checkpoint before or the one after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.storage import Folder, check_format
from prcut.train_state import Record, TrainConfig, TrainState

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT = 1
_RECORD = "checkpoint.json"


def save_checkpoint(
    folder: Folder, assigner: nn.Module, state: TrainState, config: TrainConfig
) -> None:
    """Save assigner and state; earlier checkpoints in the folder are removed."""
    from safetensors.torch import save

    tensors = {f"assigner.{name}": value for name, value in assigner.state_dict().items()}
    tensors |= {f"mass.{name}": value for name, value in state.cluster_mass.state_dict().items()}
    for number, slots in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in slots.items()}
    history = state.history
    tensors |= {f"history.{name}": torch.from_numpy(values) for name, values in history.items()}
    name = f"checkpoint-{state.step:09d}.safetensors"
    content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    files = {name: folder.write_bytes(name, iter([content]))}
    plan = {"format": _FORMAT, "config": asdict(config)}
    folder.write_json(_RECORD, {**plan, "step": state.step, "files": files})
    for other in folder.names():
        if other.startswith("checkpoint-") and other != name:
            folder.remove(other)


def load_checkpoint(
    folder: Folder, assigner: nn.Module, state: TrainState, config: TrainConfig
) -> bool:
    """Put what a checkpoint holds into ``assigner`` and ``state``; False where there is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not folder.exists(_RECORD):
        return False
    record = folder.read_json(_RECORD)
    try:
        _check_plan(folder, record, config)
        folder.verify(record)
        (name,) = record["files"]
        tensors = load(folder.read_bytes(name))
        assigner.load_state_dict(_part(tensors, "assigner."))
        state.cluster_mass.load_state_dict(_part(tensors, "mass."))
        state.optimizer.load_state_dict(_optimizer_state(tensors, state.optimizer))
        state.records = _records(_part(tensors, "history."))
        state.step = int(record["step"])
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        if isinstance(error, CorruptFileError | InvalidInputError):
            raise
        raise CorruptFileError(
            f"the checkpoint in {folder.path} does not fit this run: {error}"
        ) from error
    return True


def _check_plan(folder: Folder, record: Any, config: TrainConfig) -> None:
    check_format(f"the checkpoint in {folder.path}", int(record["format"]), _FORMAT)
    wanted = asdict(config)
    differs = sorted(name for name in wanted if record["config"].get(name) != wanted[name])
    if differs:
        raise InvalidInputError(
            f"the checkpoint in {folder.path} was made with another {' and '.join(differs)}; "
            "choose another folder, or remove this one."
        )


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _optimizer_state(
    tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in _part(tensors, "optimizer.").items():
        number, name = key.split(".", 1)
        slots.setdefault(int(number), {})[name] = value
    return {"state": slots, "param_groups": optimizer.state_dict()["param_groups"]}


def _records(history: Mapping[str, Tensor]) -> list[Record]:
    columns = [history[name] for name in Record._fields]
    return [
        Record(*(value.numpy() if value.ndim else value.item() for value in row))
        for row in zip(*columns, strict=True)
    ]
