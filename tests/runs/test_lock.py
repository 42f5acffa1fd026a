"""One writer at a time, however the one before it ended."""

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading

import pytest

from evomal.errors import EvomalError, InputError
from evomal.runs import RunStore
from evomal.runs.lock import LOCK_NAME, PROCESS_NAME, FolderLock, held_for, is_held
from tests.processes import begun
from tests.runs.test_store import SETTINGS, written

HOLDER = """
import fcntl, json, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
os.ftruncate(handle, 0)
os.pwrite(handle, json.dumps({"process": os.getpid(), "host": "elsewhere"}).encode(), 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def without_flock(monkeypatch):
    def refusing(handle, operation):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refusing)


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    with RunStore.create(tmp_path, SETTINGS):
        assert is_held(tmp_path)
        who = f"the run is in use by process {os.getpid()} on {re.escape(socket.gethostname())}"
        with pytest.raises(InputError, match=who):
            RunStore.open(tmp_path)
        with pytest.raises(InputError, match=who):
            RunStore.create(tmp_path, SETTINGS)
    assert not is_held(tmp_path)
    RunStore.open(tmp_path).close()


@pytest.mark.parametrize("purpose", ["search", "comparison"])
def test_the_lock_says_what_it_is_for(tmp_path, purpose):
    assert held_for(tmp_path) is None
    lock = FolderLock(tmp_path, purpose)
    assert held_for(tmp_path) == purpose
    lock.release()
    assert held_for(tmp_path) is None


@pytest.mark.parametrize("name", ['{"process": 1, "host": "a"}', '{"process": 1, "host": "a", "purpose": []}', ""])
def test_a_holder_that_says_nothing_else_searches(tmp_path, name):
    lock = FolderLock(tmp_path, "comparison")
    (tmp_path / LOCK_NAME).write_text(name)
    assert held_for(tmp_path) == "search"
    lock.release()


def test_the_lock_ends_with_its_process(tmp_path):
    written(tmp_path, 1)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK_NAME)]
    with begun(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=f"process {process.pid} on elsewhere"):
            RunStore.open(tmp_path)
        assert is_held(tmp_path)
        with RunStore.read(tmp_path) as store:
            assert len(store.candidates()) == 5
        process.kill()
    assert not is_held(tmp_path)
    RunStore.open(tmp_path).close()


def test_looking_whether_it_is_held_keeps_nobody_out(tmp_path):
    lock = FolderLock(tmp_path)
    lock.release()
    lock.release()
    handle = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    soon = threading.Timer(0.05, os.close, [handle])
    soon.start()
    FolderLock(tmp_path).release()
    soon.join()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"process": "x", "host": 3}', b"\xff" * 5000, b"[" * 4000])
def test_any_lock_file_will_do(tmp_path, content):
    (tmp_path / LOCK_NAME).write_bytes(content)
    lock = FolderLock(tmp_path)
    assert json.loads((tmp_path / LOCK_NAME).read_bytes())["process"] == os.getpid()
    (tmp_path / LOCK_NAME).write_bytes(content)
    with pytest.raises(InputError, match="in use by another process"):
        FolderLock(tmp_path)
    lock.release()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(EvomalError, match=r"run\.lock: must be a regular file but is a link"):
        FolderLock(tmp_path)
    assert (tmp_path / "precious").read_text() == "kept"


def test_without_flock_a_file_names_the_holder(tmp_path, without_flock):
    lock = FolderLock(tmp_path)
    assert is_held(tmp_path)
    with pytest.raises(
        InputError, match=f"in use by process {os.getpid()} on .*; if that process has ended, delete .*process"
    ):
        FolderLock(tmp_path)
    lock.release()
    assert not is_held(tmp_path)
    assert not (tmp_path / PROCESS_NAME).exists()


def test_without_flock_a_dead_process_is_followed_and_another_host_is_not(tmp_path, without_flock):
    path = tmp_path / PROCESS_NAME
    path.write_text(json.dumps({"process": dead_process(), "host": socket.gethostname()}))
    assert not is_held(tmp_path)
    FolderLock(tmp_path).release()
    path.write_text(json.dumps({"process": dead_process(), "host": "elsewhere"}))
    with pytest.raises(InputError, match="on elsewhere"):
        FolderLock(tmp_path)
    assert is_held(tmp_path)
