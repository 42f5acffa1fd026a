"""The command: its refusals, and that neither server nor search is harmed when the other is killed."""

import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from evomal.errors import InputError
from evomal.runs import load_run
from evomal.runs.recorded_run import RunState
from evomal.runs.store import RECORD_NAME
from evomal.server import serving
from evomal.server.serving import serve
from tests.server.pages import address, application
from tests.server.servers import searching, server, wait_for


def get(place: str) -> str:
    with urllib.request.urlopen(place, timeout=20) as answer:
        return answer.read().decode()


def test_server_and_search_survive_each_other(tmp_path):
    folder = tmp_path / "run"
    with server(tmp_path) as (first, place, _):
        page = place + address(tmp_path, folder)
        assert "no runs yet" in get(place)
        if sys.platform == "linux":  # the server gives way, but not the thread that begins processes
            threads = Path(f"/proc/{first.pid}/task").iterdir()
            usual = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, first.pid) == max(5, usual)
            assert usual in {os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in threads}
        with searching(folder, 2000) as search:
            wait_for(lambda: (folder / RECORD_NAME).exists() and load_run(folder).generations > 2)
            wait_for(lambda: address(tmp_path, folder) in get(place), 20)
            wait_for(lambda: 'class="badge running"' in get(page) and "<dt>time left</dt>" in get(page))
            first.send_signal(signal.SIGKILL)
            first.wait(20)
            assert search.poll() is None
            library = application(tmp_path).library
            (followed,) = library.runs.values()
            before = followed.view.generations
            wait_for(lambda: library.refresh() and followed.view.generations > before)
            assert followed.summary.is_running
            search.kill()
            search.wait(20)
            wait_for(library.refresh)
            assert followed.summary.state is load_run(folder).state is RunState.INTERRUPTED


def test_the_folder_and_the_port_are_checked(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        serve(tmp_path / "nothing")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 cannot be used: .*; choose another --port"):
            serve(tmp_path, port=port)
    with pytest.raises(InputError, match="host must be an address of this machine but got"):
        serve(tmp_path, host="no such host")


def test_answers_are_sent_at_once():
    with serving._listening_socket("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # by which asyncio decides about TCP_NODELAY


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"needs the package uvicorn: install it with pip install 'evomal\[server\]'"):
        serve(tmp_path)


def test_others_are_told_of(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr("webbrowser.open", said.append)
    serve(tmp_path, host="0.0.0.0", port=0, open_browser=True, say=said.append)
    assert any("everyone who can reach this address" in sentence for sentence in said)
    assert said[-1] == "stopped; searches are not affected"
    (token,) = {sentence.partition("#token=")[2].split()[0] for sentence in said if "#token=" in sentence}
    assert len(token) == 16
    said.clear()
    serve(tmp_path, port=0, say=said.append)
    assert not any("everyone" in sentence for sentence in said)


def test_the_package_holds_its_files():
    folder = Path(serving.__file__).parent
    assert {path.name for path in (folder / "static").iterdir()} == {"icon.svg", "live.js"}
