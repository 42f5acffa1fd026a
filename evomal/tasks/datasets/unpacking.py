"""Archives: the expected members and nothing else."""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from evomal.errors import InputError


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
