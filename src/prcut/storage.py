"""Files that are whole or not there: arrays and JSON in a folder of any pyarrow filesystem.

A file is written under a temporary name, flushed to disk and renamed (object stores show a file
only when it is complete). What belongs together is written first and sealed last by a JSON *record*
that holds the size and checksum of every file: without a valid record nothing is there.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError

if TYPE_CHECKING:
    from pyarrow import fs

__all__ = [
    "Folder",
    "check_format",
    "finite_number",
    "locate",
    "parsing",
    "plan_key",
    "whole_number",
]

_CHUNK_BYTES = 2**23
# a file being written: .name.token.prcut-tmp, which nobody else's files are called; two processes
# that write the same one, even of two machines, have two tokens
_TEMPORARY = "prcut-tmp"
_UNFINISHED = re.compile(rf"\..+\.\w+\.{_TEMPORARY}")


def locate(path: str | Path, filesystem: fs.FileSystem | None = None) -> tuple[fs.FileSystem, str]:
    """The filesystem of a path or URI, and the path on it."""
    from pyarrow import ArrowInvalid, fs

    if "\0" in str(path):
        raise InvalidInputError(f"{str(path)!r} holds a NUL character, which no path has.")
    if filesystem is not None:
        return filesystem, str(path)
    if "://" not in str(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(_with_endpoint(str(path)))
    except ArrowInvalid as error:
        raise InvalidInputError(f"{path} is not a URI that pyarrow knows: {error}.") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be reached: {error}") from error
    return found


def _with_endpoint(uri: str) -> str:
    """An S3 address with the server that AWS_ENDPOINT_URL names, as Amazon's own tools take it.

    >>> os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9000"
    >>> _with_endpoint("s3://bucket/rows")
    's3://bucket/rows?endpoint_override=127.0.0.1%3A9000&scheme=http'
    >>> del os.environ["AWS_ENDPOINT_URL"]
    >>> _with_endpoint("s3://bucket/rows")
    's3://bucket/rows'
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not uri.startswith("s3://") or not endpoint or "endpoint_override=" in uri:
        return uri
    scheme, _, host = endpoint.rpartition("://")
    options = urlencode({"endpoint_override": host, "scheme": scheme or "https"})
    return f"{uri}{'&' if '?' in uri else '?'}{options}"


def plan_key(plan: Any) -> str:
    """A short name for a plan: records made by another plan have another key.

    >>> plan_key({"a": 1, "b": 2}) == plan_key({"b": 2, "a": 1}) != plan_key({"a": 1})
    True
    """
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def check_format(what: str, found: int, newest: int) -> None:
    """Refuse what a later version of prcut wrote."""
    if found > newest:
        raise InvalidInputError(
            f"{what} has format {found}, this version reads up to {newest}; upgrade prcut."
        )


@contextmanager
def parsing(file: str) -> Iterator[None]:
    """One worded error for whatever in the content of a file is not as it should be.

    >>> with parsing("a.json"):
    ...     whole_number({"size": -1}["size"])
    Traceback (most recent call last):
    prcut.errors.CorruptFileError: a.json is altered or forged: -1 is not a whole number >= 0.
    """
    try:
        yield
    except PRCutError:
        raise
    except KeyError as error:
        raise CorruptFileError(f"{file} lacks {str(error)[:200]}.") from error
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise CorruptFileError(f"{file} is altered or forged: {str(error)[:200]}.") from error


def whole_number(value: Any, least: int = 0) -> int:
    """A size that a file declares, for :func:`parsing`."""
    if type(value) is not int or not least <= value < 2**63:  # True is an int too
        raise ValueError(f"{repr(value)[:40]} is not a whole number >= {least}")
    return value


def finite_number(value: Any) -> Any:
    """A figure that a file gives, for :func:`parsing`."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{repr(value)[:40]} is not a finite number")
    return value


class Folder:
    """A folder of arrays on a local disk or any pyarrow filesystem.

    Parameters
    ----------
    path : str or path
        A local path, or a URI such as ``s3://bucket/folder``.
    filesystem : pyarrow.fs.FileSystem, optional
        Where ``path`` is, when it is not a URI.
    """

    def __init__(self, path: str | Path, filesystem: fs.FileSystem | None = None) -> None:
        from pyarrow import fs

        self.filesystem, self.path = locate(path, filesystem)
        self._is_local = isinstance(self.filesystem, fs.LocalFileSystem)

    def __repr__(self) -> str:
        return f"Folder({self.path!r})"

    def __truediv__(self, name: str) -> Folder:
        """A folder inside this one; the first file written makes it."""
        return Folder(self._full(name), self.filesystem)

    def _full(self, name: str) -> str:
        # names also come from records, which may be forged: they never lead out of the folder
        if not _is_plain(name):
            raise CorruptFileError(f"{repr(name)[:100]} is not a plain file name in {self.path}.")
        return f"{self.path}/{name}"

    def _open(self, name: str) -> Any:
        path = self._full(name)
        if self._is_local:
            _check_link(path)
        return self.filesystem.open_input_file(path)

    # -- single files ------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether a file of that name is there."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Bytes of a file, or None where it is absent."""
        info = self.filesystem.get_file_info(self._full(name))
        return int(info.size) if info.is_file else None

    def write_bytes(self, name: str, pieces: Iterator[bytes | memoryview]) -> dict[str, Any]:
        """Write a file atomically; return its size and SHA-256."""
        digest, size = hashlib.sha256(), 0
        final = self._full(name)
        # on an object store a stream shows nothing before it is closed: no rename is needed
        if self._is_local:
            self.filesystem.create_dir(self.path, recursive=True)
        unfinished = f"{self.path}/.{name}.{secrets.token_hex(4)}.{_TEMPORARY}"
        written = unfinished if self._is_local else final
        with self.filesystem.open_output_stream(written) as stream:
            for piece in pieces:
                stream.write(piece)
                digest.update(piece)
                size += len(piece)
        if self._is_local:
            _sync(written)
            os.replace(written, final)  # noqa: PTH105
            _sync(self.path)
        return {"size": size, "sha256": digest.hexdigest()}

    def read_bytes(self, name: str) -> bytes:
        """The whole of a file."""
        with self._open(name) as file:
            content: bytes = file.read()
        return content

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.filesystem.delete_file(self._full(name))

    def write_json(self, name: str, content: Any) -> None:
        """Write JSON atomically, the same bytes for the same content."""
        text = json.dumps(content, indent=1, sort_keys=True)
        self.write_bytes(name, iter([text.encode()]))

    def read_json(self, name: str) -> Any:
        """Read JSON, refusing what is not."""
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"{self._full(name)} is not JSON: {error}") from error

    def write_array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        """Write a .npy file atomically; return its size and SHA-256."""
        array = np.ascontiguousarray(array)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header,
            np.lib.format.header_data_from_array_1_0(array),
        )

        def pieces() -> Iterator[bytes | memoryview]:
            yield header.getvalue()
            content = array.reshape(-1).view(np.uint8).data
            for start in range(0, len(content), _CHUNK_BYTES):
                yield content[start : start + _CHUNK_BYTES]

        return self.write_bytes(name, pieces())

    def read_array(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows ``start:stop`` of a .npy file, read and not mapped: no page stays behind."""
        with self._open(name) as file:
            shape, dtype, offset = self._header(name, file)
            start, stop, _ = slice(start, stop).indices(shape[0])
            row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
            content = file.read_at((stop - start) * row_bytes, offset + start * row_bytes)
        return np.frombuffer(content, dtype).reshape(stop - start, *shape[1:])

    def map_array(self, name: str) -> np.ndarray:
        """A .npy file mapped into memory where it is local, read otherwise."""
        if not self._is_local:
            return self.read_array(name)
        with self._open(name) as file:
            shape, dtype, offset = self._header(name, file)
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(self._full(name), dtype, mode="r", offset=offset, shape=shape)

    def _header(self, name: str, file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        """Shape, dtype and offset; what is forged or cut off is refused before it is allocated."""
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            header = np.lib.format.read_array_header_1_0(file)
        except (ValueError, SyntaxError, TokenError, TypeError, OSError, RecursionError) as error:
            raise CorruptFileError(f"{self._full(name)} is not a .npy file: {error}") from error
        shape, fortran, dtype = header
        offset = file.tell()
        expected = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
        # one number per place: no objects, no records, none of no size
        is_plain = dtype.kind in "biufSU" and dtype.itemsize > 0
        # numpy counts the places of an empty array as if it had one of each
        places = int(np.prod([n or 1 for n in shape], dtype=object))
        is_possible = shape and min(shape) >= 0 and places * dtype.itemsize < 2**63
        if fortran or not is_plain or not is_possible or file.size() != expected:
            raise CorruptFileError(
                f"{self._full(name)} has {file.size()} bytes, expected {expected} for an array of "
                f"shape {shape} and dtype {dtype}; it is cut off or forged. Remove it, run again."
            )
        return tuple(map(int, shape)), dtype, offset

    # -- sealed groups of files --------------------------------------------------------------

    def seal(
        self, record: str, arrays: Mapping[str, np.ndarray], content: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write arrays, then the record that makes them valid; return the record."""
        files = {name: self.write_array(name, array) for name, array in arrays.items()}
        sealed = {**content, "files": files}
        self.write_json(record, sealed)
        return sealed

    def read_record(self, record: str) -> dict[str, Any] | None:
        """The record, or None where it is absent or not one: then the group must be made anew."""
        if not self.exists(record):
            return None
        try:
            sealed = self.read_json(record)
        except CorruptFileError:
            return None
        is_record = isinstance(sealed, dict) and isinstance(sealed.get("files"), dict)
        return sealed if is_record else None

    def verify(self, sealed: Mapping[str, Any]) -> None:
        """Compare every file with its size and checksum; name the first that differs."""
        for name, expected in _sealed_files(sealed, self.path):
            size = self.size(name)
            if size != expected["size"]:
                raise CorruptFileError(
                    f"{self._full(name)} has {size} bytes, its record says {expected['size']}; "
                    "remove it and run again."
                )
            digest = hashlib.sha256()
            with self._open(name) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
            if digest.hexdigest() != expected["sha256"]:
                raise CorruptFileError(
                    f"{self._full(name)} does not match the checksum in its record; "
                    "remove it and run again."
                )

    def is_sealed(self, record: str, key: str) -> bool:
        """Whether a record made with ``key`` is there and all of its files are whole."""
        sealed = self.read_record(record)
        if sealed is None or sealed.get("key") != key:
            return False
        try:
            self.verify(sealed)
        except CorruptFileError:
            return False
        return True

    # -- the whole folder --------------------------------------------------------------------

    def names(self, *, folders: bool = False) -> list[str]:
        """Names of the files in the folder, sorted; unfinished ones are not shown."""
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        names = (info.base_name for info in found if info.is_file or folders)
        return sorted(name for name in names if not _UNFINISHED.fullmatch(name))

    def check_is_no_file(self) -> None:
        """Refuse a path at which there is a file."""
        if self.filesystem.get_file_info(self.path).is_file:
            raise InvalidInputError(f"{self.path} is a file, expected a folder or a new name.")

    def start(self, plan: Mapping[str, Any]) -> None:
        """Begin or resume what ``plan`` describes; refuse a folder that holds something else."""
        self.check_is_no_file()
        self.clear_unfinished()
        plan = json.loads(json.dumps(plan))
        if not self.exists("plan.json"):
            self.write_json("plan.json", plan)
        elif (begun := self.read_json("plan.json")) != plan:
            begun = begun if isinstance(begun, dict) else {}
            differs = sorted(name for name in plan if begun.get(name) != plan[name]) or ["plan"]
            raise InvalidInputError(
                f"{self.path} was begun with another {' and '.join(differs)}; choose another "
                "folder, or remove this one."
            )

    def read_manifest(self, newest_format: int, maker: str) -> dict[str, Any]:
        """What ``maker`` wrote last, refused where it is absent, broken or of a later format."""
        if not self.exists("manifest.json"):
            raise InvalidInputError(
                f"{self.path} holds no finished result (no manifest.json); run {maker} on it first."
            )
        manifest = self.read_json("manifest.json")
        with parsing(f"{self.path}/manifest.json"):
            found = whole_number(manifest["plan"]["format"])
        check_format(self.path, found, newest_format)
        assert isinstance(manifest, dict)  # noqa: S101
        return manifest

    def clear_unfinished(self) -> None:
        """Remove what a killed writer left behind. Only when nobody else writes here."""
        from pyarrow import fs

        everything = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        for info in self.filesystem.get_file_info(everything):
            if info.is_file and _UNFINISHED.fullmatch(info.base_name):
                self.filesystem.delete_file(info.path)

    def delete(self) -> None:
        """Remove the folder and all that is in it, if it is there."""
        from pyarrow import fs

        if self.filesystem.get_file_info(self.path).type != fs.FileType.NotFound:
            self.filesystem.delete_dir(self.path)


def _sync(path: str) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_plain(name: Any) -> bool:
    """Whether it is the name of a file on any disk, and of nothing else."""
    if not isinstance(name, str) or not name or name[0] == "." or set(name) & set("/\\\0"):
        return False
    try:
        return len(name.encode()) <= 255
    except UnicodeEncodeError:  # half of a character, which JSON can say
        return False


def _sealed_files(sealed: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Names, sizes and checksums of a record, which may be anything that JSON can say."""
    files = sealed.get("files") if isinstance(sealed, Mapping) else None
    if not isinstance(files, Mapping):
        raise CorruptFileError(f"a record in {path} lists no files; remove it and run again.")
    for name, expected in files.items():
        if not isinstance(expected, Mapping) or not {"size", "sha256"} <= expected.keys():
            raise CorruptFileError(f"a record in {path} has no size and checksum of {name!r}.")
    return list(files.items())


def _check_link(path: str) -> None:
    """Refuse a link out of its folder: in a stranger's folder it could lead to any file of ours."""
    if not os.path.islink(path):  # noqa: PTH114
        return
    target, home = Path(path).resolve(), Path(path).parent.resolve()
    # the cache of the Hugging Face Hub links snapshots/<revision>/name to blobs/<checksum>
    in_cache = home.parent.name == "snapshots" and target.parent == home.parents[1] / "blobs"
    if not (target.is_relative_to(home) or in_cache):
        raise CorruptFileError(
            f"{path} is a link out of its folder, to {target}; put the file itself there."
        )
