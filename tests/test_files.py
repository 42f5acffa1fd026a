"""Files are written whole or not at all, and only regular files are read, without links and without waiting."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from evomal.errors import EvomalError, InputError
from evomal.files import (
    MissingFileError,
    create_folder,
    find_foreign,
    open_foreign,
    read_foreign,
    write_atomically,
)


def test_it_replaces_the_old_file(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("target", ["precious", "nowhere"])
def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path, target):
    (tmp_path / "precious").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / target)
    write_atomically(tmp_path / "link", b"content")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "precious"]
    assert (tmp_path / "precious").read_bytes() == b"kept"


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: must be a regular file but is a pipe"):
        write_atomically(tmp_path / "pipe", b"content")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_foreign(tmp_path / "file", limit=5) == b"12345"
    with pytest.raises(InputError, match="file: must have at most 4 bytes but has more"):
        read_foreign(tmp_path / "file", limit=4)
    assert find_foreign(tmp_path / "none", limit=5) is None
    with pytest.raises(MissingFileError, match="none: there is no such file"):
        read_foreign(tmp_path / "none", limit=5)
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        read_foreign(tmp_path / ("x" * 300), limit=5)
    with pytest.raises(InputError, match=r"cannot be read: .*null"):
        read_foreign(tmp_path / "a\0b", limit=5)


def test_only_a_file_that_a_person_named_may_be_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert read_foreign(tmp_path / "link", limit=10, follow_links=True) == b"content"
    for name in ("link", "dangling"):
        with pytest.raises(InputError, match=f"{name}: must be a regular file but is a link"):
            find_foreign(tmp_path / name, limit=10)


@pytest.mark.parametrize("follow_links", [True, False])
@pytest.mark.parametrize(("place", "kind"), [("pipe", "a pipe"), ("", "a folder"), ("socket", "a socket")])
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, place, kind, follow_links):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(InputError, match=f"must be a regular file but is {kind}"):
            read_foreign(tmp_path / place, limit=10, follow_links=follow_links)
    with pytest.raises(InputError, match="/dev/zero: must be a regular file but is a device"):
        read_foreign(Path("/dev/zero"), limit=10, follow_links=follow_links)


def test_a_pipe_that_takes_the_place_of_the_file_meanwhile_does_not_block(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("evomal.files.require_regular", lambda *_, **__: None)
    with pytest.raises(InputError, match="must be a regular file but is a pipe"):
        read_foreign(tmp_path / "pipe", limit=10)
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(InputError, match="must be a regular file but is a link"):
        read_foreign(tmp_path / "link", limit=10)


def test_a_log_is_appended_to_but_never_through_a_link(tmp_path):
    for line in (b"one\n", b"two\n"):
        with open_foreign(tmp_path / "log", writable=True, create=True) as file:
            file.write(line)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with (
        pytest.raises(InputError, match="must be a regular file but is a link"),
        open_foreign(tmp_path / "link", writable=True, create=True),
    ):
        pass


def test_a_full_disk_is_not_bad_input(tmp_path):
    with pytest.raises(EvomalError) as caught, open_foreign(tmp_path / "log", writable=True, create=True):
        raise OSError(28, "No space left on device")
    assert str(caught.value) == f"{tmp_path / 'log'}: cannot be written: No space left on device"
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_written_is_bad_input(tmp_path, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    for name, write in {
        "mkdir": lambda: create_folder(tmp_path / "new"),
        "open": lambda: open_foreign(tmp_path / "log", writable=True, create=True).__enter__(),
        "replace": lambda: write_atomically(tmp_path / "page", b""),
    }.items():
        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            with pytest.raises(InputError, match=f"cannot be .*: {os.strerror(number)}$"):
                write()


def test_a_folder_inside_a_strangers_may_not_be_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert create_folder(tmp_path / "link") == tmp_path / "link"
    with pytest.raises(InputError, match="link: is a link, and nothing is written through it"):
        create_folder(tmp_path / "link", follow_links=False)


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path, monkeypatch, failure):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(_):
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError if isinstance(failure, OSError) else KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_the_dead_left_unfinished_is_removed(tmp_path):
    from evomal.files import remove_unfinished

    for name in (".best.json.abc123", ".best.json.x", "best.json", ".other.json.abc", ".best.jsonx"):
        (tmp_path / name).write_text("")
    remove_unfinished(tmp_path / "best.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".best.jsonx", ".other.json.abc", "best.json"]
