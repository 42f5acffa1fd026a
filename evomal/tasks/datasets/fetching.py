"""Downloading: the public addresses of the files with their checksums, and `fetch`."""

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
from typing import TYPE_CHECKING

import pooch  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from evomal.errors import InputError
from evomal.tasks.datasets.images import CIFAR10_FILES, CIFAR100_FILES, MNIST_FILES, SVHN_CHECKSUMS
from evomal.tasks.datasets.reading import verify
from evomal.tasks.datasets.registry import data_folder, dataset_named, missing_files
from evomal.tasks.datasets.tables import CALIFORNIA_FILE

if TYPE_CHECKING:
    import requests

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Source:
    """One file to download.

    Args:
        file: The name under which the download is stored.
        urls: Addresses, tried in this order.
        checksum: "algorithm:hexadecimal digest".
        members: For an archive, the names inside it and the names that these files get in the dataset's folder.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    members: Mapping[str, str] = field(default_factory=dict)


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
# The authors of SVHN publish by plain HTTP only: the checksum alone tells whether a file is theirs.
_SVHN = "http://ufldl.stanford.edu/housenumbers/"


def _cifar(file: str, sha256: str, members: tuple[str, ...]) -> Source:
    url = f"https://www.cs.toronto.edu/~kriz/{file}"
    return Source(file, (url,), f"sha256:{sha256}", {name: name for name in members})


SOURCES: dict[str, tuple[Source, ...]] = {
    "diabetes": (),  # ships with scikit-learn
    "boston": (),  # no address is known whose owners publish a checksum
    "california": (
        Source(
            "cal_housing.tgz",
            ("https://ndownloader.figshare.com/files/5976036",),
            "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
            {"CaliforniaHousing/cal_housing.data": CALIFORNIA_FILE},
        ),
    ),
    "mnist": tuple(
        Source(file, tuple(base + file for base in _MNIST), f"sha256:{sha256}")
        for file, sha256 in zip(MNIST_FILES, _MNIST_SHA256, strict=True)
    ),
    "cifar10": (
        _cifar(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            CIFAR10_FILES,
        ),
    ),
    "cifar100": (
        _cifar(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            CIFAR100_FILES,
        ),
    ),
    "svhn": tuple(Source(file, (_SVHN + file,), checksum) for file, checksum in SVHN_CHECKSUMS.items()),
}


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    sources: Sequence[Source] | None = None,
) -> Path:
    """Download the files of a dataset that are missing.

    Files that are there are checked and kept. An archive that was put into the dataset's folder by hand is unpacked.

    Args:
        name: The dataset.
        folder: The folder of all data; by default the one that `data_folder` returns.
        progress: Whether to show a progress bar on a terminal.
        sources: Where to download from, for a mirror; by default the public addresses.

    Returns:
        The dataset's folder.

    Raises:
        InputError: If there is no such dataset, a file cannot be had or stored, or a checksum is wrong.
    """
    dataset_named(name)
    home = data_folder(folder) / name
    chosen = SOURCES[name] if sources is None else sources
    if not missing_files(name, folder) and not chosen:
        return home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home):
            for source in chosen:
                _obtain(source, home, progress)
    except OSError as error:
        raise InputError(f"{name} could not be stored in {home}: {error.strerror or error}") from None
    missing = missing_files(name, folder)
    if missing:
        raise InputError(f"{name} has no public source with a known checksum: put {missing[0].name} into {home}")
    return home


def _obtain(source: Source, home: Path, progress: bool) -> None:
    """Make sure that the files of one source are in the dataset's folder."""
    file = home / source.file
    if source.members and all((home / name).is_file() for name in source.members.values()):
        return
    if file.exists():
        verify(file, source.checksum)
        if not source.members:
            return
    with _workspace(home) as workspace:
        archive = file if file.exists() else _download(source, workspace, home, progress)
        if source.members:
            _unpack(archive, source.members, workspace, home)
        else:
            os.replace(archive, file)


@contextlib.contextmanager
def _workspace(home: Path) -> Iterator[Path]:
    """A folder for unfinished files inside the dataset's folder; what a killed process left there is removed."""
    folder = home / ".unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(source: Source, workspace: Path, home: Path, progress: bool) -> Path:
    """Download the file from the first address that gives it with the right checksum."""
    import requests  # slow to import

    pooch.get_logger().setLevel("WARNING")  # it would report every download
    failures = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    hidden = not (progress and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as display:
        # Without "identity" a server may compress, and requests would unpack what is itself a gzip file.
        downloader = pooch.HTTPDownloader(
            progressbar=_Bar(display, source.file),
            chunk_size=_CHUNK,
            headers={"Accept-Encoding": "identity"},
            timeout=TIMEOUT,
        )
        for url in source.urls:
            try:
                stored = Path(pooch.retrieve(url, source.checksum, source.file, workspace, downloader=downloader))
            except requests.RequestException as error:
                failures.append(f"{url}: {_reason(error)}")
            except ValueError as error:  # the checksum is wrong; what follows "Deleted" is advice for programmers
                failures.append(f"{url}: {str(error).partition('. Deleted')[0]}")
            else:
                (workspace / "new file").touch()
                stored.chmod((workspace / "new file").stat().st_mode)  # pooch's files are for their owner only
                return stored
    raise InputError(
        f"{source.file} could not be downloaded ({'; '.join(failures)}): try again, or put the file into {home}"
    )


def _reason(error: "requests.RequestException") -> str:
    """Say in a few words what failed; requests' own text is a paragraph of nested objects."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was lost"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"not a usable address ({type(error).__name__})"


class _Bar:
    """A rich progress bar with the four names that pooch uses: total, update, reset, close."""

    def __init__(self, display: Progress, description: str) -> None:
        self._display = display
        self._task = display.add_task(description, total=None)

    @property
    def total(self) -> int:
        return int(self._display.tasks[0].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._display.update(self._task, total=size or None)

    def update(self, count: int) -> None:
        self._display.update(self._task, advance=count)

    def reset(self) -> None:
        self._display.update(self._task, completed=0)

    def close(self) -> None:
        self._display.refresh()


def _unpack(archive: Path, members: Mapping[str, str], workspace: Path, home: Path) -> None:
    """Move the named members into the dataset's folder, none before all have been unpacked."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            found = [entry for entry in tar if entry.name in members and entry.isreg()]
            tar.extractall(workspace, found, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{archive.name}: is not a complete tar.gz archive: {str(error).rstrip('.')}") from None
    absent = members.keys() - {entry.name for entry in found}
    if absent:
        raise InputError(f"{archive.name}: must hold {min(absent)}, but does not")
    for inside, name in members.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(workspace / inside, home / name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let a second process wait here: it then finds the files of the first one."""
    # A lock on the folder itself, not on a file in it, also works where the folder can only be read.
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock a folder: then there is no lock
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
