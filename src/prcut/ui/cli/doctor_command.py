"""``prcut doctor``: what this installation has, and what is missing for what."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata

from prcut.ui.cli.options import with_options
from prcut.ui.cli.shared import echo


@with_options()
def doctor() -> None:
    """Show versions, threads, GPU, memory, disk, kernels, and what is missing for which extra.

    Attach it to a bug report. Nothing is written or sent.

    [bold]Examples[/bold]

    prcut doctor

    prcut doctor --json
    """
    import shutil

    import torch

    from prcut.runtime.memory import available_memory, readable_bytes

    versions = {"python": platform.python_version(), "prcut": metadata.version("prcut")}
    missing: dict[str, list[str]] = {}
    for line in metadata.requires("prcut") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*['\"](.+?)['\"]", line)
        if not extra:
            versions[name] = _version(name)
        elif extra[1] not in ("bench", "dev", "docs") and _version(name) == "missing":
            missing.setdefault(extra[1], []).append(name)
    found = {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": "CUDA" if torch.cuda.is_available() else "none",
        "memory_free": readable_bytes(available_memory()),
        "disk_free": readable_bytes(shutil.disk_usage(".").free),
        "kernels": _kernels(),
    }
    lacks = {f"prcut[{extra}]": f"lacks {', '.join(names)}" for extra, names in missing.items()}
    lines = [f"{name:<18}  {value}" for name, value in {**versions, **found, **lacks}.items()]
    if missing:
        lines.append(f"pip install 'prcut[{','.join(missing)}]' brings what is missing")
    echo({"versions": versions, **found, "missing": missing}, "\n".join(lines))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _kernels() -> str:
    try:
        from prcut.search import kernels  # noqa: F401
    except ImportError as error:  # the remedy is in the error
        return f"missing: {error}"
    return "compiled"
