"""Files are written whole or not at all."""

import os
import stat

import pytest

from evomal.errors import InputError
from evomal.files import write_atomically


def test_it_replaces_the_old_file(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"content"


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
