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
from prcut.storage import Folder, check_format, parsing, whole_number
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
        with parsing(f"the checkpoint in {folder.path} does not fit this run: it"):
            _check_plan(folder, record, config)
            folder.verify(record)
            (name,) = record["files"]
            tensors = load(folder.read_bytes(name))
            if broken := [name for name, value in tensors.items() if not value.isfinite().all()]:
                raise ValueError(f"{broken[0]} holds NaN or infinity")
            assigner.load_state_dict(_part(tensors, "assigner."))
            if not getattr(assigner, "is_finite", True):
                raise ValueError("the assigner gives NaN or infinity in place of logits")
            state.cluster_mass.load_state_dict(_part(tensors, "mass."))
            state.optimizer.load_state_dict(_optimizer_state(tensors, state.optimizer))
            state.records = _records(_part(tensors, "history."), state.n_clusters)
            state.step = whole_number(record["step"])
            if state.step > config.max_steps:
                raise ValueError(f"step {state.step} of max_steps={config.max_steps}")
    except SafetensorError as error:
        raise CorruptFileError(
            f"the checkpoint in {folder.path} does not fit this run: {error}"
        ) from error
    return True


def _check_plan(folder: Folder, record: Any, config: TrainConfig) -> None:
    check_format(f"the checkpoint in {folder.path}", whole_number(record["format"]), _FORMAT)
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
    groups = optimizer.state_dict()["param_groups"]
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    # torch takes what it is given, and would read beyond the end of a tensor that is too short
    for place, slot in slots.items():
        shape = parameters[whole_number(place)].shape
        expected = {"step": torch.Size([]), "exp_avg": shape, "exp_avg_sq": shape}
        found = {name: value.shape for name, value in slot.items()}
        is_right = found == expected and all(v.dtype == torch.float32 for v in slot.values())
        if not is_right or slot["exp_avg_sq"].min() < 0:
            raise ValueError(f"optimizer.{place} is not that of a parameter of shape {shape}")
    return {"state": slots, "param_groups": groups}


def _records(history: Mapping[str, Tensor], n_clusters: int) -> list[Record]:
    columns = [history[name] for name in Record._fields]
    n_records = columns[0].numel()
    for name, column in zip(Record._fields, columns, strict=True):
        shape = (n_records, n_clusters) if name == "cluster_sizes" and n_records else (n_records,)
        if column.shape != shape:
            raise ValueError(f"history.{name} has shape {tuple(column.shape)}, expected {shape}")
    return [
        Record(*(value.numpy() if value.ndim else value.item() for value in row))
        for row in zip(*columns, strict=True)
    ]
