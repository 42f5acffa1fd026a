"""A full disk, a folder that cannot be written, a file that is gone: one sentence, and the record as it was."""

import errno
import os
import resource
import sqlite3

import pytest

from evomal.errors import EvomalError, InputError
from evomal.runs import RunStore, store
from evomal.runs import store as creation
from tests.runs.test_killed import interrupted_in_a_commit
from tests.runs.test_store import SETTINGS, chunk_of, written


@pytest.fixture
def full_disk():
    """Makes a store's file as large as it may be."""

    def fill(opened: RunStore) -> None:
        (pages,) = opened._connection.execute("PRAGMA page_count").fetchone()
        opened._connection.execute(f"PRAGMA max_page_count = {pages}")

    return fill


def test_a_full_disk_leaves_the_record_intact(tmp_path, full_disk):
    written(tmp_path, 4)
    with RunStore.open(tmp_path) as opened:
        before = opened.dump()
        full_disk(opened)
        with pytest.raises(EvomalError, match=r"run\.sqlite: the disk is full; what was recorded") as caught:
            opened.write_chunk(2, chunk_of(4, size=5000))
        assert not isinstance(caught.value, InputError)
        assert opened.dump() == before
    written(tmp_path, 5, begin=4)
    with RunStore.read(tmp_path) as opened:
        assert set(before.splitlines()) < set(opened.dump().splitlines())
        assert len(opened.complete_chunks()) == 5


def test_there_is_room_again_later(tmp_path, full_disk):
    with RunStore.create(tmp_path, SETTINGS) as opened:
        full_disk(opened)
        with pytest.raises(EvomalError, match="the disk is full"):
            opened.write_chunk(0, chunk_of(0, size=5000))
        opened._connection.execute("PRAGMA max_page_count = 100000")
        opened.write_chunk(0, chunk_of(0, size=5000))
        assert len(opened.candidates()) == 5


def test_a_write_that_the_system_refuses_leaves_the_record_intact(tmp_path):
    written(tmp_path, 4)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunStore.open(tmp_path) as opened:
        before = opened.dump()
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "run.sqlite").stat().st_size + 4096, limits[1]))
        try:
            with pytest.raises(EvomalError, match=r"what was recorded before is kept") as caught:
                opened.write_chunk(2, chunk_of(4, size=5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not isinstance(caught.value, InputError)
        assert opened.dump() == before
        opened.write_chunk(2, chunk_of(4, size=5000))


class Failing:
    """A connection on which one kind of statement fails as SQLite does."""

    def __init__(self, connection, statement, code, message):
        self._connection, self._statement, self._code, self._message = connection, statement, code, message

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, statement, *rest):
        if statement.startswith(self._statement):
            error = sqlite3.OperationalError(self._message)
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *rest)


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO chunks", "INSERT INTO candidates", "COMMIT"])
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, "reading or writing failed"),
        (sqlite3.SQLITE_READONLY, "cannot be written"),
        (sqlite3.SQLITE_READONLY_ROLLBACK, "was interrupted during a write"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened, or its journal"),
        (sqlite3.SQLITE_BUSY, "another program kept it locked for 60 seconds"),
    ],
)
def test_a_failing_write_leaves_the_record_intact(tmp_path, statement, code, sentence):
    written(tmp_path, 2)
    with RunStore.open(tmp_path) as opened:
        before, real = opened.dump(), opened._connection
        opened._connection = Failing(real, statement, code, "failed")
        with pytest.raises(EvomalError, match=sentence) as caught:
            opened.write_chunk(1, chunk_of(2))
        assert not isinstance(caught.value, InputError)
        opened._connection = real
        assert opened.dump() == before
        opened.write_chunk(1, chunk_of(2))


def test_an_interrupt_in_the_middle_of_a_chunk_leaves_the_record_intact(tmp_path, monkeypatch):
    written(tmp_path, 2)
    insert = store.insert

    def interrupted(connection, table, values):
        if table == "candidates" and values[1] == 3:
            raise KeyboardInterrupt
        return insert(connection, table, values)

    with RunStore.open(tmp_path) as opened:
        before = opened.dump()
        monkeypatch.setattr(store, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.write_chunk(1, chunk_of(2))
        assert opened.dump() == before


def refusing(*_, **__):
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    written(tmp_path / "run", 2)
    monkeypatch.setattr(os, "open", refusing)
    for begin in (lambda: RunStore.open(tmp_path / "run"), lambda: RunStore.create(tmp_path, SETTINGS)):
        with pytest.raises(InputError, match="cannot be written: Read-only file system"):
            begin()
    with RunStore.read(tmp_path / "run") as opened:
        assert len(opened.candidates()) == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_without_permission(tmp_path):
    written(tmp_path, 2)
    tmp_path.chmod(0o500)
    (tmp_path / "run.sqlite").chmod(0o400)
    try:
        with RunStore.read(tmp_path) as opened:
            assert len(opened.candidates()) == 10
        with pytest.raises(InputError, match=r"run\.sqlite: it or its folder cannot be written"):
            RunStore.open(tmp_path)
        with pytest.raises(InputError, match="cannot be created"):
            RunStore.create(tmp_path / "new", SETTINGS)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_half_a_commit_in_a_folder_without_permission(tmp_path):
    interrupted_in_a_commit(tmp_path)
    tmp_path.chmod(0o500)
    (tmp_path / "run.sqlite").chmod(0o400)
    try:
        with pytest.raises(EvomalError, match="was interrupted during a write"):
            RunStore.read(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_cannot_be_written_is_noticed_at_opening(tmp_path, monkeypatch):
    written(tmp_path, 2)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="it or its folder cannot be written"):
        RunStore.open(tmp_path)


@pytest.mark.parametrize("failing", ["insert", "create_tables", "connect"])
def test_a_run_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch, failing):
    def broken(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(creation, failing, broken)
        with pytest.raises(EvomalError, match=r"run\.sqlite: cannot be created: database or disk is full") as caught:
            RunStore.create(tmp_path, SETTINGS)
        assert not isinstance(caught.value, InputError)
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]
    written(tmp_path, 1)


def test_a_record_that_sqlite_may_not_create_is_bad_input(tmp_path, monkeypatch):
    def refused(*_, **__):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(creation, "connect", refused)
    with pytest.raises(InputError, match=r"run\.sqlite: cannot be created: unable to open database file"):
        RunStore.create(tmp_path, SETTINGS)


def test_a_record_that_is_moved_away_is_noticed(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as opened:
        os.rename(tmp_path / "run.sqlite", tmp_path / "elsewhere.sqlite")
        with pytest.raises(EvomalError, match="was moved or deleted while it was in use"):
            opened.write_chunk(0, chunk_of(0))
