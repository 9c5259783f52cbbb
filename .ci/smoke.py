"""Use an installed prcut as a new user would: what every wheel, image and recipe must pass.

Needs nothing but the package: no checkout, no network, no file outside a temporary folder.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import prcut


def main() -> None:
    """Fit, predict, save and load from Python, then fit and assign from the shell."""
    rng = np.random.default_rng(0)
    planted = np.repeat(np.arange(5), 60)
    rows = (4 * rng.normal(size=(5, 16))[planted] + rng.normal(size=(300, 16))).astype(np.float32)
    model = prcut.PRCut(n_clusters=5, random_state=0).fit(rows)
    assert len({*zip(planted.tolist(), model.labels_.tolist(), strict=True)}) == 5

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        model.save("model")
        again = prcut.PRCut.load("model")
        assert np.array_equal(again.predict(rows), model.predict(rows))
        np.save("rows.npy", rows)
        for command in ("fit rows.npy --clusters 5 --out run", "assign run rows.npy --out labels"):
            subprocess.run([sys.executable, "-m", "prcut", *command.split()], check=True)
        assert any(Path("labels").glob("*.parquet"))
        os.chdir("/")  # Windows removes no folder that a process is in
    print(f"prcut {prcut.__version__} works")


if __name__ == "__main__":
    main()
