"""``python -m prcut`` is ``prcut``."""

import sys

from prcut.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
