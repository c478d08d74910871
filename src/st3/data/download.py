"""Download a published file: resume where it broke off, compare checksums, and move it into place once complete."""

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from .checksum import md5_of_file
from .errors import DataError

__all__ = ["Progress", "download_file"]

Progress: TypeAlias = Callable[[str, int, int | None], None]  # called with file, bytes so far, total if known

CHUNK = 2**18  # bytes
TIMEOUT = 30  # seconds without a byte
RANGE_BEYOND_END = 416


def show_progress(file: str, done: int, total: int | None) -> None:
    """Show the progress in one line on the terminal; print nothing if stderr is a file or a pipe."""
    if not sys.stderr.isatty():
        return
    of = f" of {total / 1e6:.1f} MB, {done / total:4.0%}" if total else " MB"
    end = "\n" if done == total else ""
    print(f"\r{file}: {done / 1e6:.1f}{of}", end=end, file=sys.stderr, flush=True)


def download_file(address: str, target: Path, *, md5: str, progress: Progress = show_progress) -> None:
    """Download `address` to `target`. An interrupted download stays beside it as .part and is continued next time."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(address, part, progress)
    except (OSError, http.client.HTTPException) as error:
        # urllib raises OSErrors that hold the reason.
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"could not download {address} ({reason}); try again, or get the file elsewhere and save it as {target}"
        ) from error
    found = md5_of_file(part)
    if found != md5:
        part.unlink()
        raise DataError(
            f"the download of {address} is damaged or another version (md5 {found}, expected {md5}) and was deleted; "
            f"try again, or get the file elsewhere and save it as {target}"
        )
    part.replace(target)


def _fetch(address: str, part: Path, progress: Progress) -> None:
    """Write the file, or what is missing of it, to `part`."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"User-Agent": "st3"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()  # the error holds an open connection
        if error.code == RANGE_BEYOND_END and done:
            return  # the part is already complete, as the checksum will show
        raise
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server ignored the range and sends the whole file
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(part.stem, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done:,} of {total:,} bytes")
