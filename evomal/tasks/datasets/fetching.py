"""Bringing a dataset's files into the data folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from evomal.errors import InputError
from evomal.tasks.datasets.downloading import download, verify
from evomal.tasks.datasets.folders import data_folder
from evomal.tasks.datasets.registry import dataset_named, missing_files
from evomal.tasks.datasets.sources import SOURCES, Source
from evomal.tasks.datasets.unpacking import unpack


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
