"""The public addresses of the files, each with the checksum its publishers or users agree on."""

import contextlib
import fcntl
import gzip
import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pooch  # type: ignore[import-untyped]
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from evomal.errors import InputError
from evomal.tasks.datasets import california, cifar10, cifar100, mnist, svhn
from evomal.tasks.datasets.folders import data_folder
from evomal.tasks.datasets.registry import dataset_named, missing_files


@dataclass(frozen=True)
class Source:
    """One file to download."""

    file: str
    urls: tuple[str, ...]  # tried in this order
    checksum: str  # "algorithm:hexadecimal digest"
    members: Mapping[str, str] = field(
        default_factory=dict
    )  # of an archive: name inside → name in the dataset's folder


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"


def _mnist(file: str, md5: str) -> Source:
    return Source(file, tuple(base + file for base in _MNIST), f"md5:{md5}")


def _cifar(file: str, md5: str, members: tuple[str, ...]) -> Source:
    return Source(file, (_CIFAR + file,), f"md5:{md5}", {name: name for name in members})


def _svhn(file: str, md5: str) -> Source:
    return Source(file, (_SVHN + file,), f"md5:{md5}")


SOURCES: dict[str, tuple[Source, ...]] = {
    "diabetes": (),  # ships with scikit-learn
    "boston": (),  # no address is known whose owners publish a checksum
    "california": (
        Source(
            "cal_housing.tgz",
            ("https://ndownloader.figshare.com/files/5976036",),
            "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
            {"CaliforniaHousing/cal_housing.data": california.FILE},
        ),
    ),
    "mnist": (
        _mnist(mnist.TRAIN_IMAGES, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _mnist(mnist.TRAIN_LABELS, "d53e105ee54ea40749a09fcbcd1e9432"),
        _mnist(mnist.TEST_IMAGES, "9fb629c4189551a2d022fa330f9573f3"),
        _mnist(mnist.TEST_LABELS, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (_cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", cifar10.FILES),),
    "cifar100": (_cifar("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", cifar100.FILES),),
    "svhn": (
        _svhn(svhn.TRAIN_FILE, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        _svhn(svhn.TEST_FILE, "eb5a983be6a315427106f1b164d9cef3"),
    ),
}


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Copies the named members into the folder under our names: no path, link or mode of the archive is followed.

    Each appears whole or not at all, and none before all have been read.
    """
    ready: dict[Path, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for entry in tar:
                name = members.get(entry.name.removeprefix("./"))
                if name is None or not entry.isreg():
                    continue
                content = tar.extractfile(entry)
                assert content is not None  # a regular file has one
                final = folder / name
                final.parent.mkdir(parents=True, exist_ok=True)
                temporary = final.with_name(f".{final.name}.unpacking")
                ready[final] = temporary
                with content, temporary.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                    file.flush()
                    os.fsync(file.fileno())
        absent = [inside for inside, name in members.items() if folder / name not in ready]
        if absent:
            raise InputError(f"{archive}: must hold {absent[0]}, but does not")
        for final, temporary in ready.items():
            os.replace(temporary, final)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{archive}: is not a whole tar.gz archive: {str(error).rstrip('.')}") from None
    finally:
        for temporary in ready.values():
            temporary.unlink(missing_ok=True)


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


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    sources: Sequence[Source] | None = None,
) -> Path:
    """Downloads what is missing and returns the dataset's folder; files that are there are kept, after a checksum.

    `sources` replaces the public addresses, for a mirror. An archive put into the folder by hand is unpacked.
    """
    dataset_named(name)
    home = data_folder(folder) / name
    chosen = SOURCES[name] if sources is None else sources
    if not missing_files(name, folder) and not chosen:
        return home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone_in(home):
            for source in chosen:
                _obtain(source, home, progress)
    except OSError as error:
        raise InputError(f"{name} could not be stored in {home}: {error.strerror or error}") from None
    missing = missing_files(name, folder)
    if missing:
        raise InputError(f"{name} has no public source with a known checksum: put {missing[0].name} into {home}")
    return home


def _obtain(source: Source, home: Path, progress: bool) -> None:
    file = home / source.file
    if source.members:
        if all((home / name).is_file() for name in source.members.values()):
            return
        if file.exists():  # put there by hand: it stays
            verify(file, source.checksum)
            unpack(file, source.members, home)
            return
        download(source, home, progress=progress)
        try:
            unpack(file, source.members, home)
        finally:
            file.unlink()
    elif file.exists():
        verify(file, source.checksum)
    else:
        download(source, home, progress=progress)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """A second process waits here and then finds the files, instead of writing into the first one's."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock a folder: then as before
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
