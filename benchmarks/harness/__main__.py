"""The paper's tables and their peers: ``python -m benchmarks.harness table2``.

quick    the digits of scikit-learn, in a minute or two
table1   the loss against cross-entropy where the similarity is the label, test splits
table2   the cut against spectral clustering on the same graphs, MNIST, Fashion-MNIST, CIFAR-10
table3   all methods on raw pixels of MNIST, Fashion-MNIST, USPS and COIL-20
table4   all methods on embeddings of CIFAR-10, Banking77, CLINC150 and StackOverflow
peers    table3 and table4
contest  the development half of the contest, all methods

Every run is one line in NAME.jsonl, and is not made again. The table also goes to NAME.md.
"""

from __future__ import annotations

import argparse
import logging
import sys

from benchmarks.harness.commands import bench_table

from prcut.errors import CorruptFileError, PRCutError


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for wrong usage, 3 for a corrupt file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("name", help="table to run")
    parser.add_argument("--results", default="benchmarks/results", help="folder of the records")
    parser.add_argument("--methods", type=_names, help="only these methods: NAME,…")
    parser.add_argument("--datasets", type=_names, help="only these data sets: NAME,…")
    for option, words in {
        "summary-only": "run nothing",
        "mixed": "allow runs of different versions, splits or code, and say so below the table",
    }.items():
        parser.add_argument(f"--{option}", action="store_true", help=words)
    given = vars(parser.parse_args(arguments))
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    try:
        print(bench_table(given.pop("name"), **given), end="")
    except PRCutError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, CorruptFileError) else 2
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
