"""Files from the web: whole, checked and atomic, or not there.

A file is fetched in pieces, taken up again where a connection broke, compared with the size and the
digest that are known beforehand, and only then given its name.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prcut.errors import CorruptFileError, PRCutError
from prcut.progress import Progress, Reporter

__all__ = ["RemoteFile", "download"]

_OnProgress = Callable[[Progress], None]
_SCHEMES = ("https",)
_TIMEOUT_SECONDS = 30.0
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0
_PIECE_BYTES = 2**18
# the server may do better the next time; any other refusal is final
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)


class _InterruptedError(Exception):
    """The connection failed in a way that another attempt may mend."""


class RemoteFile(NamedTuple):
    """A file on the web, and what it must be."""

    url: str
    name: str
    size: int
    is_exact: bool
    """Whether ``size`` is the size, or only more than the file can have."""
    digest: str
    """SHA-256, or MD5 where its publisher gives no better."""


def download(remote: RemoteFile, folder: Path, on_progress: _OnProgress | None) -> None:
    """Fetch one file: whole and checked under its name, or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    # the number of the process keeps two downloads of the same file apart
    temporary = folder / f".{remote.name}.{os.getpid()}.prcut-tmp"
    try:
        with temporary.open("wb") as file:
            for piece in _checked_pieces(remote, on_progress):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / remote.name)
    finally:
        temporary.unlink(missing_ok=True)


def _checked_pieces(remote: RemoteFile, on_progress: _OnProgress | None) -> Iterator[bytes]:
    """The content, which ends with an error unless size and checksum are right."""
    algorithm = {32: "md5", 64: "sha256"}[len(remote.digest)]
    digest, received = hashlib.new(algorithm, usedforsecurity=False), 0
    reporter = Reporter(f"download {remote.name}", remote.size, on_progress)
    for piece in _all_pieces(remote):
        received += len(piece)
        _check_size(remote, received)
        digest.update(piece)
        reporter.advance(len(piece))
        yield piece
    is_short = remote.is_exact and received < remote.size
    if is_short or digest.hexdigest() != remote.digest:
        raise CorruptFileError(
            f"{remote.url} gave {received} bytes with {algorithm} {digest.hexdigest()}, expected "
            f"{remote.digest}; nothing was kept. Try again later, or put a whole {remote.name} "
            "into the folder named by PRCUT_DATA."
        )


def _check_size(remote: RemoteFile, size: int) -> None:
    if size > remote.size:
        raise CorruptFileError(
            f"{remote.url} has {size} bytes or more, expected at most {remote.size}; nothing was "
            f"kept. Put a whole {remote.name} into the folder named by PRCUT_DATA."
        )


def _all_pieces(remote: RemoteFile) -> Iterator[bytes]:
    """The content through as many connections as it takes, each going on where the last broke."""
    received, failure = 0, ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            for piece in _pieces(remote, received):
                received += len(piece)
                yield piece
        except _InterruptedError as error:
            failure = str(error)
        else:
            return
    raise PRCutError(
        f"{remote.url} could not be fetched in {_ATTEMPTS} attempts, the last ended with: "
        f"{failure}. Check the network, or put {remote.name} into the folder named by PRCUT_DATA."
    )


def _pieces(remote: RemoteFile, start: int) -> Iterator[bytes]:
    """The content from byte ``start`` on, by one connection."""
    _check_scheme(remote.url)
    headers = {"User-Agent": "prcut", **({"Range": f"bytes={start}-"} if start else {})}
    request = urllib.request.Request(remote.url, headers=headers)  # noqa: S310
    opener = urllib.request.build_opener(_CheckedRedirects)
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            yield from _body(remote, response, start)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _PASSING_STATUS:
            raise _InterruptedError(f"status {error.code} ({error.reason})") from error
        raise PRCutError(
            f"{remote.url} answered with status {error.code} ({error.reason}); put {remote.name} "
            "into the folder named by PRCUT_DATA."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(f"{type(error).__name__}: {error}") from error


def _body(remote: RemoteFile, response: Any, start: int) -> Iterator[bytes]:
    """What a response adds to the first ``start`` bytes."""
    position = _first_byte(response)
    if position > start:
        raise _InterruptedError(f"the answer began at byte {position} instead of {start}")
    announced = response.headers.get("Content-Length", "")
    end = position + int(announced) if announced.isdecimal() else None
    _check_size(remote, end or 0)
    while piece := response.read(_PIECE_BYTES):
        # a server that knows no ranges begins anew: what is known is passed over
        new = piece[max(0, start - position) :]
        position += len(piece)
        if new:
            yield new
    # http.client ends a body that was cut off as if it were whole
    if end is not None and position < end:
        raise _InterruptedError(f"the connection closed after {position} of {end} bytes")


def _first_byte(response: Any) -> int:
    if response.status != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if found is None:
        raise _InterruptedError("a partial answer did not say which part it is")
    return int(found[1])


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects stay encrypted."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request that a redirect leads to."""
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if url.partition(":")[0] not in _SCHEMES:
        raise PRCutError(f"{url} is not fetched: only {' or '.join(_SCHEMES)} addresses are.")
