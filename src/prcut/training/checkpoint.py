"""Checkpoints of a training run: safetensors and JSON, complete or absent.

``checkpoint.json`` names the one valid file of tensors, with its checksum, and is written after it:
a run that is killed at any moment leaves either the previous checkpoint or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from prcut.errors import InvalidInputError
from prcut.runtime.folder import Folder, check_format, parsing, whole_number
from prcut.training.adam import Adam
from prcut.training.settings import TrainConfig
from prcut.training.state import OF_GRAPH, Record, TrainState

_FORMAT = 1
_RECORD = "checkpoint.json"


def save_checkpoint(
    folder: Folder, assigner: nn.Module, state: TrainState, config: TrainConfig
) -> None:
    """Save assigner and state, then remove earlier checkpoints from the folder."""
    from safetensors.torch import save

    tensors = {f"assigner.{name}": value for name, value in assigner.state_dict().items()}
    tensors |= {f"mass.{name}": value for name, value in state.cluster_mass.state_dict().items()}
    for number, slots in state.optimizer.state.items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in slots.items()}
    tensors["heads"], history = state.heads, state.history
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
    """Load a checkpoint into ``assigner`` and ``state``; return False where there is none."""
    from safetensors.torch import load

    if not folder.exists(_RECORD):
        return False
    record = folder.read_json(_RECORD)
    with parsing(f"the checkpoint in {folder.path} does not fit this run: it"):
        _check_plan(folder, record, config)
        folder.verify(record)
        (name,) = record["files"]
        tensors = load(folder.read_bytes(name))
        if broken := [key for key, value in tensors.items() if not value.isfinite().all()]:
            raise ValueError(f"{broken[0]} holds NaN or infinity")
        if len(tensors["heads"]) < len(state.heads):
            state.keep_heads(assigner, tensors["heads"])
        assigner.load_state_dict(_with_prefix(tensors, "assigner."))
        if not getattr(assigner, "is_finite", True):
            raise ValueError("the assigner gives NaN or infinity in place of logits")
        state.cluster_mass.load_state_dict(_with_prefix(tensors, "mass."))
        state.optimizer.state = _optimizer_state(tensors, state.optimizer)
        state.records = parse_records(_with_prefix(tensors, "history."), state.n_clusters)
        state.step = whole_number(record["step"])
        if state.step > config.max_steps:
            raise ValueError(f"step {state.step} of max_steps={config.max_steps}")
    return True


def _check_plan(folder: Folder, record: Any, config: TrainConfig) -> None:
    check_format(f"the checkpoint in {folder.path}", whole_number(record["format"]), _FORMAT)
    wanted, found = asdict(config), record["config"]
    differs = sorted(name for name in wanted if found[name] != wanted[name])
    if differs:
        raise InvalidInputError(
            f"the checkpoint in {folder.path} was made with another {' and '.join(differs)}; "
            "choose another folder, or remove this one."
        )


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _optimizer_state(
    tensors: Mapping[str, Tensor], optimizer: Adam
) -> dict[int, dict[str, Tensor]]:
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in _with_prefix(tensors, "optimizer.").items():
        position, name = key.split(".", 1)
        slots.setdefault(int(position), {})[name] = value
    # torch does not check, and would read beyond the end of a tensor that is too short
    for number, slot in slots.items():
        parameter = optimizer.parameters[whole_number(number)]
        shape = parameter.shape
        expected = {"step": torch.Size([]), **dict.fromkeys(optimizer.moments, shape)}
        found = {name: value.shape for name, value in slot.items()}
        is_right = found == expected and all(v.dtype == torch.float32 for v in slot.values())
        if not is_right or slot[optimizer.moments[-1]].min() < 0:
            raise ValueError(f"optimizer.{number} is not that of a parameter of shape {shape}")
        slots[number] = {name: value.to(parameter.device) for name, value in slot.items()}
    return slots


def parse_records(history: Mapping[str, Tensor], n_clusters: int) -> list[Record]:
    """Check a saved history and return its records."""
    missing = {name for name in (*OF_GRAPH[:1], "head_objectives") if name not in history}
    missing |= {*OF_GRAPH} if "cut" in missing else set()
    names = [name for name in Record._fields if name not in missing]
    n_records = history["step"].numel()
    for name in names:
        column = history[name]
        shape: tuple[int, ...] = (n_records,)
        if name == "cluster_sizes" and n_records:
            shape = n_records, n_clusters
        elif name == "head_objectives":
            shape = n_records, column.numel() // max(1, n_records)
        if column.shape != shape:
            raise ValueError(f"history.{name} has shape {tuple(column.shape)}, expected {shape}")
    records = []
    for row in zip(*(history[name] for name in names), strict=True):
        values: dict[str, Any] = dict.fromkeys(missing)
        values |= zip(names, (v.numpy() if v.ndim else v.item() for v in row), strict=True)
        records.append(Record(**values))
    return records
