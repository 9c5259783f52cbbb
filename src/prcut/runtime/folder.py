"""Folders of arrays and JSON, on a local disk or any pyarrow filesystem, that survive a crash.

A single file is whole or absent: it is written under a temporary name, flushed to disk and renamed
(object stores show a file only when it is complete).

Several files are *sealed* together: the files are written first, and last a JSON *record* with the
size and SHA-256 of each. Without a valid record the files count as absent; a crash before the last
write leaves nothing that could be mistaken for a result.

This is what makes tasks *idempotent*: a task first looks for its own record, made with the key of
the same plan, and does nothing when the record and its files are whole. Otherwise it writes them
anew. So a task may be killed, run again, or run twice at once, and the files end up the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError

if TYPE_CHECKING:
    from pyarrow import fs

_CHUNK_BYTES = 2**23
# numpy parses headers by ast, whose depth Python 3.11 counts once for all threads
_PARSING = threading.Lock()
# A file being written is called .name.token.prcut-tmp, which no file of anybody else is. The random
# token keeps two processes apart that write the same file, even on two machines.
_TEMPORARY = "prcut-tmp"
_UNFINISHED = re.compile(rf"\..+\.\w+\.{_TEMPORARY}")
# half of a surrogate pair, which JSON can hold, is in no file name
_PLAIN_NAME = re.compile(r"[^./\\\0\ud800-\udfff][^/\\\0\ud800-\udfff]*")


def locate(path: str | Path, filesystem: fs.FileSystem | None = None) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a path or URI, and the path on it."""
    from pyarrow import ArrowInvalid, fs

    if "\0" in str(path):
        raise InvalidInputError(f"{str(path)!r} holds a NUL character, which no path has.")
    if filesystem is not None:
        return filesystem, str(path)
    if "://" not in str(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(str(path))
    except ArrowInvalid as error:
        raise InvalidInputError(f"{path} is not a URI that pyarrow knows: {error}.") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be reached: {error}") from error
    return found


def plan_key(plan: Any) -> str:
    """Return a short key of a plan: another plan has another key.

    >>> plan_key({"a": 1, "b": 2}) == plan_key({"b": 2, "a": 1}) != plan_key({"a": 1})
    True
    """
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def check_format(what: str, found: int, newest: int) -> None:
    """Refuse a file or folder that a later version of prcut wrote."""
    if found > newest:
        raise InvalidInputError(
            f"{what} has format {found}, this version reads up to {newest}; upgrade prcut."
        )


@contextmanager
def parsing(file: str) -> Iterator[None]:
    """Raise one worded error for whatever is wrong in the content of a file."""
    try:
        yield
    except (PRCutError, OSError, MemoryError):
        raise
    except KeyError as error:
        raise CorruptFileError(f"{file} lacks {str(error)[:200]}.") from error
    except Exception as error:
        raise CorruptFileError(f"{file} is altered or forged: {str(error)[:200]}.") from error


def whole_number(value: Any, least: int = 0) -> int:
    """Return a size that a file declares, or raise an error for :func:`parsing`."""
    if type(value) is not int or not least <= value < 2**63:  # True is an int too
        raise ValueError(f"{repr(value)[:40]} is not a whole number >= {least}")
    return value


def finite_number(value: Any) -> Any:
    """Return a figure that a file gives, or raise an error for :func:`parsing`."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{repr(value)[:40]} is not a finite number")
    return value


class Folder:
    """A folder of arrays at a local path, a URI, or a path on the filesystem that is given."""

    def __init__(self, path: str | Path, filesystem: fs.FileSystem | None = None) -> None:
        self.filesystem, self.path = locate(path, filesystem)
        self._is_local = self.filesystem.type_name == "local"

    def __repr__(self) -> str:
        return f"Folder({self.path!r})"

    def __truediv__(self, name: str) -> Folder:
        """Return the folder ``name`` inside this one; writing its first file makes it."""
        return Folder(self._full(name), self.filesystem)

    def _full(self, name: str) -> str:
        # names come from records too; a forged one must not lead out of the folder
        is_plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name)
        if not is_plain or len(name.encode()) > 255:
            raise CorruptFileError(f"{repr(name)[:100]} is not a plain file name in {self.path}.")
        return f"{self.path}/{name}"

    def _open(self, name: str) -> Any:
        path = self._full(name)
        if self._is_local:
            _check_link(path)
        return self.filesystem.open_input_file(path)

    def exists(self, name: str) -> bool:
        """Return whether a file of that name exists."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None where it is absent."""
        info = self.filesystem.get_file_info(self._full(name))
        return int(info.size) if info.is_file else None

    def write_bytes(self, name: str, chunks: Iterator[bytes | memoryview]) -> dict[str, Any]:
        """Write a file atomically; return its size and SHA-256."""
        digest, size = hashlib.sha256(), 0
        final = written = self._full(name)
        # an object store shows nothing before the stream is closed: no rename is needed there
        if self._is_local:
            self.filesystem.create_dir(self.path, recursive=True)
            written = f"{self.path}/.{name}.{secrets.token_hex(4)}.{_TEMPORARY}"
        with _unfinished(written) if self._is_local else nullcontext():
            with self.filesystem.open_output_stream(written) as stream:
                for chunk in chunks:
                    stream.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
            if self._is_local:
                _sync(written)
                os.replace(written, final)  # noqa: PTH105
                _sync(self.path)
        return {"size": size, "sha256": digest.hexdigest()}

    def read_bytes(self, name: str) -> bytes:
        """Read a whole file."""
        with self._open(name) as file:
            return bytes(file.read())

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.filesystem.delete_file(self._full(name))

    def write_json(self, name: str, content: Any) -> None:
        """Write JSON atomically; the same content gives the same bytes."""
        text = json.dumps(content, indent=1, sort_keys=True)
        self.write_bytes(name, iter([text.encode()]))

    def read_json(self, name: str) -> Any:
        """Read JSON; refuse a file that is not."""
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"{self._full(name)} is not JSON: {error}") from error

    def write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        """Write columns of equal length as a Parquet file, atomically."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(dict(columns)), sink)
        self.write_bytes(name, iter([memoryview(sink.getvalue())]))

    def write_array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        """Write a .npy file atomically; return its size and SHA-256."""
        return self.write_arrays(name, array.shape, array.dtype, [array])

    def write_arrays(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], arrays: Iterable[np.ndarray]
    ) -> dict[str, Any]:
        """Write arrays, one after the other, as one .npy file of that shape."""
        header = io.BytesIO()
        description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, description | {"shape": shape})
        contents = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays)
        chunks = (
            content[start : start + _CHUNK_BYTES]
            for content in contents
            for start in range(0, len(content), _CHUNK_BYTES)
        )
        return self.write_bytes(name, chain([header.getvalue()], chunks))

    def read_array(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read rows ``start:stop`` of a .npy file; unlike a mapping it leaves no page behind."""
        with self._open(name) as file:
            shape, dtype, offset = self._header(name, file)
            start, stop, _ = slice(start, stop).indices(shape[0])
            row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
            content = file.read_at((stop - start) * row_bytes, offset + start * row_bytes)
        return np.frombuffer(content, dtype).reshape(stop - start, *shape[1:])

    def map_array(self, name: str) -> np.ndarray:
        """Map a .npy file into memory if it is local, read it otherwise."""
        if not self._is_local:
            return self.read_array(name)
        with self._open(name) as file:
            shape, dtype, offset = self._header(name, file)
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(self._full(name), dtype, mode="r", offset=offset, shape=shape)

    def _header(self, name: str, file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        """Read shape, dtype and offset; refuse a forged or cut file before memory is allocated."""
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            with _PARSING:
                shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        except (ValueError, SyntaxError, TokenError, TypeError, OSError, RecursionError) as error:
            raise CorruptFileError(f"{self._full(name)} is not a .npy file: {error}") from error
        offset = file.tell()
        expected = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
        # one number or text per entry: no objects, no records, no type of size 0
        is_plain = dtype.kind in "biufSU" and dtype.itemsize > 0
        # numpy computes the strides of an empty array as if every zero in its shape were a one
        n_entries = int(np.prod([n or 1 for n in shape], dtype=object))
        is_possible = shape and min(shape) >= 0 and n_entries * dtype.itemsize < 2**63
        if is_fortran or not is_plain or not is_possible or file.size() != expected:
            raise CorruptFileError(
                f"{self._full(name)} has {file.size()} bytes, expected {expected} for an array of "
                f"shape {shape} and dtype {dtype}; it is cut off or forged: remove it and run "
                "again."
            )
        return tuple(map(int, shape)), dtype, offset

    def seal(
        self, record: str, arrays: Mapping[str, np.ndarray], content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write arrays, then the record that seals them; return the record."""
        files = {name: self.write_array(name, array) for name, array in arrays.items()}
        sealed = {**content, "files": files}
        self.write_json(record, sealed)
        return sealed

    def read_record(self, record: str) -> dict[str, Any] | None:
        """Read a record; None where it is absent or broken, and its files must be made anew."""
        try:
            sealed = self.read_json(record) if self.exists(record) else None
        except CorruptFileError:
            return None
        is_record = isinstance(sealed, dict) and isinstance(sealed.get("files"), dict)
        return sealed if is_record else None

    def verify(self, sealed: Mapping[str, Any]) -> None:
        """Compare the files of a record with their sizes and checksums; name one that differs."""
        with parsing(f"a record in {self.path}"):
            files = [(name, file["size"], file["sha256"]) for name, file in sealed["files"].items()]
        for name, expected_size, checksum in files:
            if (size := self.size(name)) != expected_size:
                raise CorruptFileError(
                    f"{self._full(name)} has {size} bytes, its record says {expected_size}; "
                    "remove it and run again."
                )
            digest = hashlib.sha256()
            with self._open(name) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
            if digest.hexdigest() != checksum:
                raise CorruptFileError(
                    f"{self._full(name)} does not match the checksum in its record; "
                    "remove it and run again."
                )

    def is_sealed(self, record: str, key: str) -> bool:
        """Return whether a record made with ``key`` exists and all of its files are whole."""
        sealed = self.read_record(record)
        if sealed is not None and sealed.get("key") == key:
            with suppress(CorruptFileError):
                self.verify(sealed)
                return True
        return False

    def names(self, *, folders: bool = False) -> list[str]:
        """List the files in the folder, sorted, without unfinished ones."""
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        names = (info.base_name for info in found if info.is_file or folders)
        return sorted(name for name in names if not _UNFINISHED.fullmatch(name))

    def check_is_no_file(self) -> None:
        """Refuse a path that is a file."""
        if self.filesystem.get_file_info(self.path).is_file:
            raise InvalidInputError(f"{self.path} is a file, expected a folder or a new name.")

    def start(self, plan: Mapping[str, Any]) -> None:
        """Start or resume what ``plan`` describes; refuse a folder started with another plan."""
        self.check_is_no_file()
        self.clear_unfinished()
        plan = json.loads(json.dumps(plan))
        if not self.exists("plan.json"):
            self.write_json("plan.json", plan)
        elif (found := self.read_json("plan.json")) != plan:
            found = found if isinstance(found, dict) else {}
            differs = sorted(name for name in plan if found.get(name) != plan[name]) or ["plan"]
            raise InvalidInputError(
                f"{self.path} was begun with another {' and '.join(differs)}; choose another "
                "folder, or remove this one."
            )

    def read_manifest(self, newest_format: int, maker: str) -> dict[str, Any]:
        """Read the manifest, the last file that ``maker`` writes."""
        if not self.exists("manifest.json"):
            raise InvalidInputError(
                f"{self.path} holds no finished result (no manifest.json); run {maker} on it first."
            )
        manifest: dict[str, Any] = self.read_json("manifest.json")
        with parsing(f"{self.path}/manifest.json"):
            check_format(self.path, whole_number(manifest["plan"]["format"]), newest_format)
        return manifest

    def clear_unfinished(self) -> None:
        """Remove what killed writers left behind, and nothing that a live one holds."""
        from pyarrow import fs

        everything = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        for info in self.filesystem.get_file_info(everything):
            if info.is_file and _UNFINISHED.fullmatch(info.base_name) and _is_stale(info.path):
                with suppress(OSError):  # its writer, or another start, was faster
                    self.filesystem.delete_file(info.path)

    def delete(self) -> None:
        """Remove the folder and everything in it, if it exists."""
        if self.filesystem.get_file_info(self.path).type.name != "NotFound":
            self.filesystem.delete_dir(self.path)


@contextmanager
def _unfinished(path: str) -> Iterator[None]:
    """Make a file and lock it until it is written; remove it where that fails.

    The lock ends with the process that holds it, however that ends.
    """
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        _lock(descriptor)
        if os.path.exists(path):  # noqa: PTH110
            break
        os.close(descriptor)  # another start removed it before it was locked
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(path)  # noqa: PTH107
        raise
    finally:
        os.close(descriptor)


def _is_stale(path: str) -> bool:
    """Return whether nobody holds the lock of an unfinished file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return True
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file; return whether that is sure to have worked."""
    if sys.platform != "win32":  # where open files cannot be removed anyway
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or on a filesystem without locks
            return False
    return True


def _sync(path: str) -> None:
    """Flush a file, or the names in a folder, to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_link(path: str) -> None:
    """Refuse a link out of its folder: a stranger's could lead to any file of this machine."""
    if not os.path.islink(path):  # noqa: PTH114
        return
    target, home = Path(path).resolve(), Path(path).parent.resolve()
    # the cache of the Hugging Face Hub links snapshots/<revision>/name to blobs/<checksum>
    in_cache = home.parent.name == "snapshots" and target.parent == home.parents[1] / "blobs"
    if not (target.is_relative_to(home) or in_cache):
        raise CorruptFileError(
            f"{path} is a link out of its folder, to {target}; put the file itself there."
        )


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of files in ``PRCUT_CACHE`` or the platform's cache."""
    if given := os.environ.get("PRCUT_CACHE"):
        return Path(given) / kind
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "prcut" / kind


def absolute_path(path: str | Path) -> str:
    """Return a path that means the same in every folder; a URI stays as it is."""
    return str(path).rstrip("/") if "://" in str(path) else str(Path(path).absolute())
