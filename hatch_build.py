"""Compile the loops of the search while the package is built, where a C compiler is found.

Without one the package is pure Python, and slower. The library is plain C without Python's ABI, so
a wheel is tagged by its platform only: one serves every version of Python.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE, _LIBRARY = Path("src/prcut/search/kernels.c"), Path("src/prcut/search/libkernels.so")


class CustomBuildHook(BuildHookInterface):
    """Called by hatchling for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile the library into the source tree and add it to a wheel."""
        root = Path(self.root)
        if self.target_name != "wheel" or not _compile(root):
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(str(_LIBRARY))


def _compile(root: Path) -> bool:
    """Compile, and return whether that worked; PRCUT_REQUIRE_KERNELS makes a failure an error."""
    compiler = shlex.split(os.environ.get("CC", "cl" if sys.platform == "win32" else "cc"))
    source, library = root / _SOURCE, root / _LIBRARY
    # no fused multiplication: the same numbers on every processor, and as NumPy has them
    if Path(compiler[0]).stem == "cl":
        command = [*compiler, "/O2", "/fp:precise", "/LD", f"/Fe:{library}", str(source)]
    else:
        flags = "-O3 -ffp-contract=off -fvisibility=hidden -shared -fPIC"
        # ARCHFLAGS names the processor that a wheel for macOS is built for
        flags = " ".join([flags, os.environ.get("CFLAGS", ""), os.environ.get("ARCHFLAGS", "")])
        command = [*compiler, *shlex.split(flags), "-o", str(library), str(source), "-lm"]
    try:
        if not shutil.which(compiler[0]):
            raise FileNotFoundError(f"no C compiler {compiler[0]}")
        subprocess.run(command, check=True, cwd=root)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("PRCUT_REQUIRE_KERNELS"):
            raise
        print(f"prcut is built without its compiled search: {error}", file=sys.stderr)  # noqa: T201
        return False
    return True
