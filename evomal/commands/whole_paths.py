"""Files by their whole paths, so that what is recorded of a command can be done again from elsewhere."""

from pathlib import Path


def whole_file(name: str) -> str:
    """The path of a file; a name that is no file, such as a loss's, as it is."""
    return str(Path(name).resolve()) if Path(name).is_file() else name


def whole_task(spec: str) -> str:
    """A task with the path of its file, or its name."""
    if ":" not in spec:
        return spec
    path, _, function = spec.rpartition(":")
    return f"{Path(path).resolve()}:{function}"
