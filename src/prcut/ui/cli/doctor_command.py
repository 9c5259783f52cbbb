"""``prcut doctor``: what this installation has, and what is missing for what."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import prcut
from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import echo

# extras that a user installs, not those of the project's own work
_EXTRAS = ("embed", "hub", "onnx", "peers", "plot", "ray")


@with_options()
def doctor() -> None:
    """Show versions, threads, GPU, memory, disk, kernels, and what is missing for which extra.

    Attach it to a bug report. Nothing is written or sent.

    [bold]Examples[/bold]

    prcut doctor

    prcut doctor --json
    """
    found = examine()
    missing = {
        f"prcut[{extra}]": "complete" if not lacks else f"lacks {', '.join(lacks)}"
        for extra, lacks in found["missing"].items()
    }
    lines = {name: value for name, value in found.items() if name not in ("versions", "missing")}
    rows = {**found["versions"], **lines, **missing}
    width = max(map(len, rows))
    shown = [f"{name.replace('_', ' '):<{width}}  {value}" for name, value in rows.items()]
    echo(found, "\n".join([*shown, *_advice(found)]))


def examine() -> dict[str, Any]:
    """Return what is known of the installation and the machine."""
    import shutil
    import tempfile

    import torch

    from prcut.runtime.folder import cache_folder
    from prcut.runtime.memory import available_memory, readable_bytes

    needed = _requirements()
    versions = {"prcut": prcut.__version__, "python": platform.python_version()}
    versions |= {name: _version(name) or "missing" for name in needed.pop("")}
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        gpus.append("MPS")
    return {
        "versions": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": ", ".join(gpus) or "none",
        "memory_free": readable_bytes(available_memory()),
        "disk_free": readable_bytes(shutil.disk_usage(".").free),
        "temporary_free": readable_bytes(shutil.disk_usage(tempfile.gettempdir()).free),
        "cache": str(cache_folder("")),
        "kernels": _kernels(),
        "missing": {
            extra: [name for name in needed[extra] if _version(name) is None]
            for extra in _EXTRAS
            if extra in needed
        },
    }


def _kernels() -> str:
    """Return whether the compiled search loads, or the error, which has the remedy."""
    try:
        from prcut.search import kernels  # noqa: F401
    except ImportError as error:
        return f"missing: {error}"
    return "compiled"


def _requirements() -> dict[str, list[str]]:
    """Return the packages that the installed prcut names, by extra; "" has those of all."""
    import re

    needed: dict[str, list[str]] = {"": []}
    for line in metadata.requires("prcut") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*['\"](.+?)['\"]", line)
        if name != "prcut":  # an extra that contains another
            needed.setdefault(extra[1] if extra else "", []).append(name)
    return needed


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _advice(found: dict[str, Any]) -> list[str]:
    """Say what to do, a line for each thing that is not as it could be."""
    advice = []
    if lacking := [name for name, version in found["versions"].items() if version == "missing"]:
        advice.append(f"install prcut again: {', '.join(lacking)} is missing")
    extras = ",".join(extra for extra, lacks in found["missing"].items() if lacks)
    if extras:
        advice.append(f"pip install 'prcut[{extras}]' brings what is missing")
    return advice
