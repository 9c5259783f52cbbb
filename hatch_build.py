"""Compile the loops of the search while the package is built, which needs a C compiler.

The library is plain C without Python's ABI, so a wheel is tagged by its platform only: one serves
every version of Python. Who installs a wheel needs no compiler.
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
        if self.target_name != "wheel":
            return
        compile_library(Path(self.root))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(str(_LIBRARY))


def compile_library(root: Path) -> None:
    """Compile the library into the source tree, with the compiler that CC names, if it does."""
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
        raise RuntimeError(
            f"prcut's search could not be compiled: {error}. Building from source, such as from an "
            "sdist, needs a C compiler: install one, or set CC to its name. Wheels need none: "
            "'pip install --only-binary prcut prcut' installs a wheel or fails."
        ) from error
