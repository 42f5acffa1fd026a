"""One file over HTTP: whole, verified, or not there at all.

The bytes gather in a hidden file beside the final one. Only when their checksum is right does that file take the final
name, in one step. A transfer that broke off is taken up where it stopped if the server can do so; pooch carries the
bytes, but always begins at the first one, so the request for the rest is made here.
"""

import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pooch  # type: ignore[import-untyped]
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from evomal.errors import InputError
from evomal.tasks.datasets.sources import Source

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_OK, _RANGE_NOT_SATISFIABLE = 200, 416


def verify(path: Path, checksum: str) -> None:
    """Refuses a file that is not the one the checksum was taken of."""
    if complaint := _complaint(path, checksum):
        raise InputError(f"{path}: {complaint}: delete it and fetch it again")


def _complaint(path: Path, checksum: str) -> str | None:
    """What is wrong with the file's checksum, if anything is."""
    algorithm, expected = checksum.split(":")
    received = pooch.file_hash(str(path), alg=algorithm)
    return None if received == expected else f"must have the {algorithm} checksum {expected}, but has {received}"


def download(source: Source, folder: Path, *, progress: bool) -> Path:
    """The file in that folder, from the first address that gives it whole."""
    final, part = folder / source.file, folder / f".{source.file}.part"
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    hidden = not (progress and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as display:
        bar = _Bar(display, source.file)
        # It is whole already if the last process was killed after the last byte and before the renaming.
        if not _size(part) or _complaint(part, source.checksum):
            _gather(source, part, bar)
    os.replace(part, final)
    return final


def _gather(source: Source, part: Path, bar: "_Bar") -> None:
    """Fills the part file with bytes of the right checksum, or says why no address could give them."""
    failures: list[str] = []
    complaint = None
    for url in source.urls:
        # What lies there from another day may not fit the rest: then the same address is asked for all of it.
        for _ in range(2 if _size(part) else 1):
            try:
                _transfer(url, part, bar)
            except requests.RequestException as error:
                failures.append(f"{url}: {_reason(error)}")
                if getattr(error.response, "status_code", None) != _RANGE_NOT_SATISFIABLE:
                    break
            else:
                complaint = _complaint(part, source.checksum)
                if complaint is None:
                    return
                failures.append(f"{url}: {complaint}")
            part.unlink()
    if not _size(part):
        part.unlink(missing_ok=True)
    if complaint is not None:
        raise InputError(f"{source.file} arrived damaged or changed ({'; '.join(failures)})")
    raise InputError(
        f"{source.file} could not be downloaded ({'; '.join(failures)}): try again, or put the file into {part.parent}"
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(url: str, part: Path, bar: "_Bar") -> None:
    """Appends what is missing, or writes everything when the server does not do parts."""
    responses: list[requests.Response] = []
    with part.open("ab") as file:
        start = file.tell()

        def look_at(response: requests.Response, **_: Any) -> None:
            responses.append(response)
            if response.status_code == _OK:  # all of it, though the rest alone may have been asked for
                file.truncate(0)
            bar.begin(file.seek(0, os.SEEK_END))

        # Without "identity" a server may compress on the way, and a part of that is no part of the file.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        carry = pooch.HTTPDownloader(
            progressbar=bar, chunk_size=_CHUNK, headers=headers, hooks={"response": look_at}, timeout=TIMEOUT
        )
        try:
            carry(url, file, None)
        finally:
            for response in responses:
                response.close()
        _settle(file)


def _settle(file: BinaryIO) -> None:
    """The bytes are on the disk before a name says that they are."""
    file.flush()
    os.fsync(file.fileno())


def _reason(error: requests.RequestException) -> str:
    """In a few words; requests' own text is a paragraph of nested objects."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"not a usable address ({type(error).__name__})"


class _Bar:
    """A rich progress bar with the four names pooch calls: total, update, reset, close."""

    def __init__(self, display: Progress, description: str) -> None:
        self._display = display
        self._task = display.add_task(description, total=None)
        self._start = 0

    def begin(self, start: int) -> None:
        self._start = start
        self.reset()

    @property
    def total(self) -> int:
        return int(self._display.tasks[0].total or 0) - self._start

    @total.setter
    def total(self, rest: int) -> None:
        self._display.update(self._task, total=self._start + rest if rest else None)

    def update(self, count: int) -> None:
        self._display.update(self._task, advance=count)

    def reset(self) -> None:
        self._display.update(self._task, completed=self._start)

    def close(self) -> None:
        self._display.refresh()
