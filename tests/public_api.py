"""What a version promises: public names with their parameters and members, commands with options.

When a version is published, keep it for the next:

    python tests/public_api.py > tests/fixtures/public_names_0.2.0.json
"""

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

import typer

import prcut.errors
from prcut.ui.cli.commands import app

ROOMS = ("numerics", "runtime", "graph", "search", "training", "fit", "runs", "curate", "ui")
Api = dict[str, dict[str, Any]]


def describe() -> Api:
    """Return every public name and every command of the prcut that is installed."""
    found: Api = {}
    for package in ("prcut", *(f"prcut.{room}" for room in ROOMS)):
        module = importlib.import_module(package)
        for name in sorted({*module.__all__} - {"__version__"}):
            found[f"{package}.{name}"] = _of(getattr(module, name))
    for name, thing in vars(prcut.errors).items():
        if inspect.isclass(thing) and thing.__module__ == "prcut.errors":
            found[f"prcut.errors.{name}"] = {}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        options = [option for each in command.params for option in each.opts if option[0] == "-"]
        found[f"$ prcut {name}"] = {"options": sorted(options)}
    return found


def _of(thing: Any) -> dict[str, Any]:
    if not inspect.isclass(thing):
        return {"parameters": _parameters(thing)} if callable(thing) else {}
    members = {
        name: _parameters(member) if callable(member) else None
        for name, member in inspect.getmembers(thing)
        if not name.startswith("_") and _is_ours(thing, name)
    }
    return {"parameters": _parameters(thing), "members": members}


def _is_ours(cls: type, name: str) -> bool:
    """Return whether prcut defines a member, not torch or scikit-learn."""
    if name.startswith("set_") and name.endswith("_request"):  # scikit-learn's, put into classes
        return False
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    return owner.__module__.startswith("prcut.")


def _parameters(thing: Any) -> list[tuple[str, str, bool]] | None:
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # of types that are written in C
        return None
    return [
        (each.name, each.kind.name, each.default is not inspect.Parameter.empty)
        for each in parameters
    ]


def broken(before: Api, now: Api) -> Iterator[str]:
    """Yield what worked before and no longer does."""
    for name, old in before.items():
        if name not in now:
            yield f"{name} is gone"
            continue
        new = now[name]
        for option in sorted(set(old.get("options", ())) - set(new.get("options", ()))):
            yield f"{name} {option} is gone"
        yield from _broken_call(name, old.get("parameters"), new.get("parameters"))
        for member, parameters in old.get("members", {}).items():
            if member not in new.get("members", {}):
                yield f"{name}.{member} is gone"
            else:
                yield from _broken_call(f"{name}.{member}", parameters, new["members"][member])


def _broken_call(name: str, before: Any, now: Any) -> Iterator[str]:
    if before is None or now is None:
        return
    new = {each[0]: (place, *each[1:]) for place, each in enumerate(now)}
    takes_any = any(kind == "VAR_KEYWORD" for _, kind, _ in now)
    for place, (parameter, kind, has_default) in enumerate(before):
        if parameter not in new:
            if not takes_any:
                yield f"{name}({parameter}=) is gone"
            continue
        new_place, new_kind, new_default = new[parameter]
        if has_default and not new_default:
            yield f"{name}({parameter}=) must be given now"
        if kind == "POSITIONAL_OR_KEYWORD" and (new_kind, new_place) != (kind, place):
            yield f"{name}({parameter}) is no longer argument {place + 1}"
    old = {each[0] for each in before}
    for parameter, kind, has_default in now:
        if parameter not in old and not has_default and not kind.startswith("VAR_"):
            yield f"{name} asks for {parameter}, which is new"


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(what)}" for name, what in describe().items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
