"""Fingerprints of data: a hash that changes with the content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyarrow import fs

# data of up to so many bytes are read in full, in some hundredths of a second
_READ_IN_FULL = 2**25
# of larger files, the bytes of a piece, and the pieces of all files together
_PIECE_BYTES, _N_PIECES = 2**12, 256
# the end of a file: Parquet has the statistics of every column there
_TAIL_BYTES = 2**16
# rows of a larger array in memory
_N_ROWS = 2**12


def fingerprint_files(
    filesystem: fs.FileSystem, infos: Sequence[fs.FileInfo], about: str = ""
) -> str:
    """Return a hash of the names and the content of files, and of ``about``.

    Where all files together are larger than 32 MB, only pieces of them are read, and the times at
    which they were modified count too. A change between the pieces by a writer that sets the time
    back is not seen.
    """
    in_full = sum(info.size for info in infos) <= _READ_IN_FULL
    n_pieces = max(1, _N_PIECES // max(1, len(infos)))
    digest = hashlib.sha256(about.encode())
    for info in infos:
        modified = 0 if in_full else info.mtime_ns
        digest.update(f"{info.base_name} {info.size} {modified}\n".encode())
        with filesystem.open_input_file(info.path) as file:
            if in_full:
                digest.update(file.read())
                continue
            last = max(0, info.size - _TAIL_BYTES)
            for start in np.linspace(0, last, n_pieces, dtype=np.int64)[:-1].tolist():
                digest.update(file.read_at(min(_PIECE_BYTES, info.size - start), start))
            digest.update(file.read_at(info.size - last, last))
    return digest.hexdigest()


def fingerprint_array(array: np.ndarray) -> str:
    """Return a hash of an array: of all rows up to 32 MB, else of 4,096, evenly spread."""
    digest = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
    n_rows = len(array)
    if array.nbytes > _READ_IN_FULL and n_rows > _N_ROWS:
        array = array[np.linspace(0, n_rows - 1, _N_ROWS, dtype=np.int64)]
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
