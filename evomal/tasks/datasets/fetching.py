"""Downloading by https only: the public addresses of the files, the SHA-256 of each file and member, and `fetch`."""

import contextlib
import gzip
import os
import re
import shutil
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import pooch  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from evomal.errors import InputError
from evomal.tasks.datasets.readers import (
    CALIFORNIA_FILE,
    CIFAR10_FILES,
    CIFAR100_FILES,
    MNIST_FILES,
    SVHN_CHECKSUMS,
    verify,
)
from evomal.tasks.datasets.registry import data_folder, dataset_named, missing_files

if TYPE_CHECKING:
    import requests

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16
_SCHEMES = ("https",)


class ArchiveMember(NamedTuple):
    """A file inside an archive: the name that it gets in the dataset's folder, and its checksum."""

    name: str
    checksum: str


@dataclass(frozen=True)
class Download:
    """One file to download.

    Args:
        file: The name under which the download is stored.
        urls: Addresses that begin with https, tried in this order.
        checksum: "sha256:hexadecimal digest".
        members: For an archive, the files to unpack by their names inside it.

    Raises:
        InputError: If a checksum is not a SHA-256.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    members: Mapping[str, ArchiveMember] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for checksum in (self.checksum, *(member.checksum for member in self.members.values())):
            if not re.fullmatch("sha256:[0-9a-f]{64}", checksum):
                raise InputError(f"{self.file}: a checksum must be sha256:… with 64 digits but is {checksum!r}")


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
# The authors' page links to plain HTTP. If their server does not answer by https, users put the files there by hand.
_SVHN = "https://ufldl.stanford.edu/housenumbers/"
_CALIFORNIA_SHA256 = "a2b44dcc7e1c9091b43c4f458b25cbd1f7e8068d08edd26bc4703108d3fa6214"
_CIFAR10_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
_CIFAR100_SHA256 = (
    "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
)


def _cifar(file: str, sha256: str, names: tuple[str, ...], of_members: tuple[str, ...]) -> Download:
    members = {name: ArchiveMember(name, f"sha256:{of_one}") for name, of_one in zip(names, of_members, strict=True)}
    return Download(file, (f"https://www.cs.toronto.edu/~kriz/{file}",), f"sha256:{sha256}", members)


SOURCES: dict[str, tuple[Download, ...]] = {
    "diabetes": (),  # ships with scikit-learn
    "boston": (),  # no address is known whose owners publish a checksum
    "california": (
        Download(
            "cal_housing.tgz",
            ("https://ndownloader.figshare.com/files/5976036",),
            "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
            {"CaliforniaHousing/cal_housing.data": ArchiveMember(CALIFORNIA_FILE, f"sha256:{_CALIFORNIA_SHA256}")},
        ),
    ),
    "mnist": tuple(
        Download(file, tuple(base + file for base in _MNIST), f"sha256:{sha256}")
        for file, sha256 in zip(MNIST_FILES, _MNIST_SHA256, strict=True)
    ),
    "cifar10": (
        _cifar(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            CIFAR10_FILES,
            _CIFAR10_SHA256,
        ),
    ),
    "cifar100": (
        _cifar(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            CIFAR100_FILES,
            _CIFAR100_SHA256,
        ),
    ),
    "svhn": tuple(Download(file, (_SVHN + file,), checksum) for file, checksum in SVHN_CHECKSUMS.items()),
}


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    sources: Sequence[Download] | None = None,
) -> Path:
    """Download the files of a dataset that are missing.

    Existing files are checked and kept. An archive that was put into the dataset's folder by hand is unpacked.

    Args:
        name: The dataset.
        folder: The folder of all data; by default the one that `data_folder` returns.
        progress: Whether to show a progress bar on a terminal.
        sources: Where to download from, for a mirror; by default the public addresses.

    Returns:
        The dataset's folder.

    Raises:
        InputError: If there is no such dataset, a file cannot be downloaded or stored, or a checksum is wrong.
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


def _obtain(source: Download, home: Path, progress: bool) -> None:
    """Make sure that the files of one source are in the dataset's folder."""
    file = home / source.file
    if source.members and all((home / member.name).is_file() for member in source.members.values()):
        for member in source.members.values():
            verify(home / member.name, member.checksum)
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
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    else:  # rmtree would wait for the other end of a pipe
        folder.unlink(missing_ok=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(source: Download, workspace: Path, home: Path, progress: bool) -> Path:
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
            hooks={"response": _refuse_downgrade},
        )
        for url in source.urls:
            try:
                _require_https(url)
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

    if isinstance(error, requests.exceptions.InvalidSchema):
        return f"only addresses that begin with https are used, not {error}"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was lost"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"not a usable address ({type(error).__name__})"


def _require_https(url: str) -> None:
    import requests

    if urlsplit(url).scheme not in _SCHEMES:
        raise requests.exceptions.InvalidSchema(url)


def _refuse_downgrade(response: "requests.Response", *_: Any, **__: Any) -> None:
    """Raise if the server redirects to an address without https."""
    if response.is_redirect:
        _require_https(urljoin(response.url, response.headers["location"]))


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


def _unpack(archive: Path, members: Mapping[str, ArchiveMember], workspace: Path, home: Path) -> None:
    """Move the named members into the dataset's folder, none before all have been unpacked and verified."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            found = [entry for entry in tar if entry.name in members and entry.isreg()]
            tar.extractall(workspace, found, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{archive.name}: is not a complete tar.gz archive: {str(error).rstrip('.')}") from None
    absent = members.keys() - {entry.name for entry in found}
    if absent:
        raise InputError(f"{archive.name}: must hold {min(absent)}, but does not")
    for inside, member in members.items():
        verify(workspace / inside, member.checksum)
    for inside, member in members.items():
        (home / member.name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(workspace / inside, home / member.name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let a second process wait here: it then finds the files of the first one."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows cannot lock folders: there both processes download, and both find their files
        yield
        return
    # A lock on the folder itself, not on a file in it, also works where the folder can only be read.
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock a folder: then there is no lock
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
