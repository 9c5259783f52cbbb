import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.runtime.folder import Folder, plan_key
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.saved import load_model, save_model

MAKERS: dict[str, Callable[[], Assigner]] = {
    "linear": lambda: Assigner(6, 3),
    "deep": lambda: Assigner(6, 3, hidden=(5, 4)),
    "bottleneck": lambda: Assigner(6, 3, hidden=(5,), bottleneck=2),
    "linear bottleneck": lambda: Assigner(6, 3, bottleneck=2),
}


def same(one: Assigner, other: Assigner) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        value.dtype == second[name].dtype and torch.equal(value, second[name])
        for name, value in first.items()
    )


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_models_come_back_bit_for_bit(tmp_path: Path, maker: str, dtype: torch.dtype) -> None:
    assigner = MAKERS[maker]().to(dtype)
    assigner.standardize(torch.arange(6), 2.5)
    random_state = torch.get_rng_state()
    save_model(tmp_path / "model", assigner, {"scores": [1, 2.5], "name": "é"})
    loaded, description = load_model(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), random_state)
    assert description == {"scores": [1, 2.5], "name": "é"}
    assert type(loaded) is type(assigner)
    assert same(loaded, assigner)
    assert assigner.training
    assert not loaded.training
    assert [p.requires_grad for p in loaded.parameters()] == [True] * len(list(loaded.parameters()))
    batch = torch.randn(4, 6).to(dtype)
    assert torch.equal(loaded.probs(batch), assigner.probs(batch))


def test_the_card_loads_the_model_and_stays_the_users(tmp_path: Path) -> None:
    save_model(tmp_path, Assigner(6, 3), {"a": 1})
    card = (tmp_path / "README.md").read_text()
    _, front, _ = card.split("---\n")
    assert yaml.safe_load(front) == {"library_name": "prcut", "tags": ["clustering", "prcut"]}
    (lines,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, Any] = {}
    exec(lines.replace("name of this repository or folder", str(tmp_path)), names)  # noqa: S102
    rows = torch.randn(5, 6)
    expected = load_model(tmp_path).assigner(rows).argmax(1)
    assert names["model"].predict(rows.numpy()).tolist() == expected.tolist()
    (tmp_path / "README.md").write_text("mine")
    save_model(tmp_path, Assigner(6, 2), {})
    assert (tmp_path / "README.md").read_text() == "mine"


# -- what is not saved -----------------------------------------------------------------------


class Altered(Assigner):
    pass


@pytest.mark.parametrize(
    ("assigner", "description", "message"),
    [
        (torch.nn.Linear(2, 2), {}, "of type Linear, expected Assigner; pass"),
        (Altered(2, 2), {}, "of type Altered, expected Assigner"),
        (Assigner(2, 2), {"score": float("nan")}, "must hold JSON values only"),
        (Assigner(2, 2), {"scores": torch.ones(2)}, "Tensor is not JSON serializable"),
        (Assigner(2, 2), {"a": 1, 2: 3}, "use str keys"),
        (Assigner(2, 2), [1], "of type list, expected a dict"),
    ],
)
def test_what_cannot_come_back_is_not_saved(
    tmp_path: Path, assigner: Any, description: Any, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        save_model(tmp_path / "model", assigner, description)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "{", "[]"])
def test_other_peoples_models_are_not_written_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(
        InvalidInputError, match=r"config\.json does not belong to a prcut model; ch"
    ):
        save_model(tmp_path, Assigner(2, 2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == content
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidInputError, match="is a file, expected a folder or a new name"):
        save_model(file, Assigner(2, 2), {})


# -- killed in the middle --------------------------------------------------------------------


def saved(path: Path) -> Assigner:
    """A model in ``path``, with weights that no other one has."""
    assigner = Assigner(6, 3, generator=torch.Generator().manual_seed(1))
    save_model(path, assigner, {"number": 1})
    return assigner


@pytest.mark.parametrize("when", ["open", "write", "sync", "remove", "rename", "config"])
def test_killed_while_it_saves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Old model, new model or a worded refusal; never tensors that config.json does not mean."""
    old = saved(tmp_path)
    new = Assigner(6, 3, generator=torch.Generator().manual_seed(2))
    write_bytes, replace = Folder.write_bytes, os.replace

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def half_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield next(pieces)[:100]
        raise KeyboardInterrupt

    def write_dies(folder: Folder, name: str, pieces: Iterator[Any]) -> dict[str, Any]:
        if when == "open" or (when == "config" and name == "config.json"):
            raise KeyboardInterrupt
        return write_bytes(folder, name, half_of(pieces) if when == "write" else pieces)

    def replace_checks(source: str, target: str) -> None:
        # at no moment may config.json describe other tensors than are there
        assert not (tmp_path / "config.json").exists()
        if when == "rename":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_bytes", write_dies)
        patch.setattr(os, "replace", replace_checks)
        if when == "remove":
            patch.setattr(Folder, "remove", dies)
        if when == "sync":
            patch.setattr("prcut.runtime.folder._sync", dies)
        with pytest.raises(KeyboardInterrupt):
            save_model(tmp_path, new, {"number": 2})
    if when in ("open", "write", "remove"):
        loaded, description = load_model(tmp_path)
        assert same(loaded, old)
        assert description == {"number": 1}
    else:
        with pytest.raises(InvalidInputError, match=r"no finished model \(no config\.json\)"):
            load_model(tmp_path)
    save_model(tmp_path, new, {"number": 2})  # and the next one goes through
    loaded, description = load_model(tmp_path)
    assert same(loaded, new)
    assert description == {"number": 2}


# -- forged and broken -----------------------------------------------------------------------


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"absent holds no finished model .*; pass a folder that"
    ):
        load_model(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="file holds no finished model"):
        load_model(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="empty holds no finished model"):
        load_model(tmp_path / "empty")
    with pytest.raises(InvalidInputError, match="is not a URI that pyarrow knows"):
        load_model("nonsense://x")


def forge(path: Path, *keys: str, value: Any) -> None:
    """Set ``config[keys[0]][keys[1]]… = value``; ``...`` removes it."""
    config = json.loads((path / "config.json").read_text())
    inner = config
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    config.pop("checksum")
    config["checksum"] = plan_key(config)
    (path / "config.json").write_text(json.dumps(config))


def put_tensors(path: Path, content: bytes) -> None:
    """Replace the tensors by what has the right checksum."""
    (path / "model.safetensors").write_bytes(content)
    record = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(path, "files", "model.safetensors", value=record)


@pytest.mark.parametrize("value", [2, 10**6])
def test_later_formats_are_refused(tmp_path: Path, value: int) -> None:
    saved(tmp_path)
    forge(tmp_path, "format", value=value)
    message = rf"has format {value}, this version reads up to 1; upgrade prcut\."
    with pytest.raises(InvalidInputError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["format"], True, "is altered or forged: True is not a whole number"),
        (["assigner"], ..., "lacks 'assigner'"),
        (["files"], {}, r".* lists the files \[\], expected \['model.safetensors'\]"),
        (["files", "../../outside"], {"size": 1}, r".* lists the files .*outside"),
        (["assigner", "kind"], "pickle", r".* describes the assigner by .*'pickle'"),
        (["assigner", "n_features"], ..., ".* describes the assigner by"),
        (["assigner", "n_features"], -6, ".* -6 is not a whole number >= 1"),
        (["assigner", "hidden"], [5, 0], ".* 0 is not a whole number >= 1"),
    ],
)
def test_forged_config_is_refused(
    tmp_path: Path, keys: list[str], value: Any, message: str
) -> None:
    saved(tmp_path)
    forge(tmp_path, *keys, value=value)
    with pytest.raises(CorruptFileError, match=rf"config\.json {message}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "sizes",
    [
        {"n_features": 10**12},
        {"hidden": [10**9, 10**9]},
        {"hidden": [1] * 10**6},
    ],
)
def test_declared_sizes_take_no_memory(tmp_path: Path, sizes: dict[str, Any]) -> None:
    saved(tmp_path)
    for name, value in sizes.items():
        forge(tmp_path, "assigner", name, value=value)

    class SmallTensorsOnly(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.device.type != "meta":
                assert out.numel() < 100, f"{func} made {tuple(out.shape)} from forged sizes"
            return out

    with (
        SmallTensorsOnly(),
        pytest.raises(CorruptFileError, match=r"model\.safetensors is altered or forged"),
    ):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.bias": None}, r'Missing key\(s\) in state_dict: "head\.bias"'),
        ({"head.bias": torch.ones(3, 1)}, r"size mismatch for head\.bias: .*\[3, 1\].*\[3\]"),
        ({"head.bias": torch.ones(3).double()}, "dtypes are torch.float32, torch.float64"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Tensor | None], message: str
) -> None:
    saved(tmp_path)
    tensors = {**load_file(tmp_path / "model.safetensors"), **change}
    put_tensors(tmp_path, save({k: v for k, v in tensors.items() if v is not None}))
    with pytest.raises(CorruptFileError, match=message):
        load_model(tmp_path)
