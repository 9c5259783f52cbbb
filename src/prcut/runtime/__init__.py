"""Restartable work on rows and files, which knows nothing of what the rows mean.

:mod:`~prcut.runtime.folder` keeps files that are whole or absent; :mod:`~prcut.runtime.sources`
reads rows; :mod:`~prcut.runtime.engine` and :mod:`~prcut.runtime.ray_engine` run idempotent tasks;
:mod:`~prcut.runtime.shuffle` regroups rows on disk; :mod:`~prcut.runtime.progress` reports;
:mod:`~prcut.runtime.device` asks the system.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.runtime.engine import Engine as Engine
    from prcut.runtime.engine import LocalEngine as LocalEngine
    from prcut.runtime.progress import Progress as Progress
    from prcut.runtime.ray_engine import RayEngine as RayEngine
    from prcut.runtime.sources import open_source as open_source

_HOME = {
    "Engine": "engine",
    "LocalEngine": "engine",
    "Progress": "progress",
    "RayEngine": "ray_engine",
    "open_source": "sources",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
