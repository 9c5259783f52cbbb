"""``python -m prcut`` is ``prcut``."""

import sys

from prcut.ui.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
