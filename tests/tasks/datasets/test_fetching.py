"""Downloads from a server on this machine that can be told to misbehave."""

import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.tasks.datasets import SOURCES, Download, fetch, fetching, missing_files
from evomal.tasks.datasets.fetching import ArchiveMember
from evomal.tasks.datasets.readers import CIFAR10_FILES, read_cifar10
from tests.tasks.datasets.files import write_boston, write_cifar10

CONTENT = np.random.default_rng(0).bytes(300_000)
HALF = 150_000
FILE = "boston_house_prices.csv"  # the set with one plain file


class Server:
    """Serves bytes by path; `cut_at` closes the connection early."""

    def __init__(self):
        self.contents = {}
        self.cut_at = None
        self.asked = []  # paths
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request):
        self.asked.append(request.path)
        content = self.contents.get(request.path)
        if content is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content[: self.cut_at])

    def url(self, path):
        return f"http://127.0.0.1:{self.http.server_port}{path}"

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(fetching, "_SCHEMES", ("http",))  # a server with a certificate would test nothing more
    server = Server()
    server.contents["/file"] = CONTENT
    yield server
    server.close()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def source(*urls, checksum=None):
    return (Download(FILE, urls, checksum or sha256(CONTENT)),)


def get(folder, sources, name="boston"):
    return fetch(name, folder, progress=False, sources=sources)


def refused(folder, sources, name="boston"):
    with pytest.raises(InputError) as caught:
        get(folder, sources, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


WHOLE = f"boston/{FILE}"


def test_a_download_arrives_whole_and_is_not_repeated(tmp_path, server):
    assert get(tmp_path, source(server.url("/file"))) == tmp_path / "boston"
    assert (tmp_path / WHOLE).read_bytes() == CONTENT
    assert files_in(tmp_path) == [WHOLE]
    get(tmp_path, source(server.url("/file")))
    assert server.asked == ["/file"]


def test_files_are_as_readable_as_any_other(tmp_path, server):
    get(tmp_path, source(server.url("/file")))
    (tmp_path / "other").touch()
    assert (tmp_path / WHOLE).stat().st_mode == (tmp_path / "other").stat().st_mode


def test_an_interrupted_download_leaves_nothing_and_can_be_repeated(tmp_path, server):
    server.cut_at = HALF
    said = refused(tmp_path, source(server.url("/file")))
    assert FILE in said
    assert "the connection was lost" in said
    assert files_in(tmp_path) == []

    server.cut_at = None
    get(tmp_path, source(server.url("/file")))
    assert (tmp_path / WHOLE).read_bytes() == CONTENT
    assert files_in(tmp_path) == [WHOLE]


def test_a_killed_process_leaves_no_file_of_the_set_and_its_rest_is_removed(tmp_path, server):
    sent = threading.Event()
    release = threading.Event()

    def stall(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(CONTENT)))
        request.end_headers()
        request.wfile.write(CONTENT[:HALF])
        request.wfile.flush()
        sent.set()
        release.wait(300)

    whole_answer, server.answer = server.answer, stall
    script = (
        "import sys; from evomal.tasks.datasets import Download, fetch, fetching; fetching._SCHEMES = ('http',);"
        "fetch('boston', sys.argv[1], progress=False, sources=[Download(sys.argv[2], (sys.argv[3],), sys.argv[4])])"
    )
    arguments = [str(tmp_path), FILE, server.url("/file"), sha256(CONTENT)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments])
    try:
        assert sent.wait(300)
        for _ in range(1000):
            if files_in(tmp_path):
                break
            threading.Event().wait(0.01)
    finally:
        process.kill()
        process.wait()
        release.set()
    assert files_in(tmp_path) != []
    assert not (tmp_path / WHOLE).exists()
    server.answer = whole_answer
    get(tmp_path, source(server.url("/file")))
    assert (tmp_path / WHOLE).read_bytes() == CONTENT
    assert files_in(tmp_path) == [WHOLE]


def test_a_wrong_checksum_names_file_expected_and_received(tmp_path, server):
    expected = "0" * 64
    said = refused(tmp_path, source(server.url("/file"), checksum=f"sha256:{expected}"))
    assert FILE in said
    assert expected in said
    assert hashlib.sha256(CONTENT).hexdigest() in said
    assert files_in(tmp_path) == []


def test_a_missing_file_says_what_to_put_where(tmp_path, server):
    said = refused(tmp_path, source(server.url("/nowhere")))
    assert "the server answered 404" in said
    assert f"put the file into {tmp_path / 'boston'}" in said
    assert said.startswith(FILE)
    assert files_in(tmp_path) == []


def unreachable():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/file"


def test_an_unreachable_server_says_what_to_put_where(tmp_path, server):
    said = refused(tmp_path, source(unreachable()))
    assert "no connection" in said
    assert f"put the file into {tmp_path / 'boston'}" in said
    assert files_in(tmp_path) == []


def test_the_second_address_is_tried_when_the_first_fails(tmp_path, server):
    get(tmp_path, source(unreachable(), server.url("/nowhere"), server.url("/file")))
    assert (tmp_path / WHOLE).read_bytes() == CONTENT


def test_the_second_address_is_tried_when_the_first_gives_another_file(tmp_path, server):
    server.contents["/other"] = b"another file"
    get(tmp_path, source(server.url("/other"), server.url("/file")))
    assert (tmp_path / WHOLE).read_bytes() == CONTENT
    assert files_in(tmp_path) == [WHOLE]


def test_a_damaged_file_that_is_there_is_named_and_kept(tmp_path, server):
    (tmp_path / "boston").mkdir()
    (tmp_path / WHOLE).write_bytes(b"mine")
    said = refused(tmp_path, source(server.url("/file")))
    assert said.startswith(f"{tmp_path / WHOLE}: must have the sha256 checksum")
    assert (tmp_path / WHOLE).read_bytes() == b"mine"


def test_a_huge_file_that_is_there_is_refused_without_reading_it(tmp_path, server):
    path = tmp_path / WHOLE
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(2**40)
    sentence = refused(tmp_path, source(server.url("/file")))
    assert sentence == f"{path}: must have at most 1,073,741,824 bytes but has 1,099,511,627,776"


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("/")])
def test_what_stands_in_the_place_of_unfinished_files_is_removed(tmp_path, server, make):
    (tmp_path / "boston").mkdir()
    make(tmp_path / "boston" / ".unfinished")
    get(tmp_path, source(server.url("/file")))
    assert files_in(tmp_path) == [WHOLE]


def test_two_at_once_download_once(tmp_path, server):
    threads = [threading.Thread(target=get, args=(tmp_path, source(server.url("/file")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == ["/file"]
    assert (tmp_path / WHOLE).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    said = refused(tmp_path / "file", source("http://127.0.0.1:1/"))
    assert str(tmp_path / "file/boston") in said


def test_boston_has_to_be_put_there_by_hand(tmp_path):
    said = refused(tmp_path, None)
    assert f"put {FILE} into {tmp_path / 'boston'}" in said
    write_boston(tmp_path / "boston")
    assert get(tmp_path, None) == tmp_path / "boston"


def test_diabetes_and_unknown_names(tmp_path):
    assert get(tmp_path, None, "diabetes") == tmp_path / "diabetes"
    assert not (tmp_path / "diabetes").exists()
    assert "did you mean 'mnist'?" in refused(tmp_path, None, "mnits")


# Archives


def archive(entries):
    """A tar archive of (name or TarInfo, bytes)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def cifar_source(server, content, entries):
    server.contents["/archive"] = content
    members = {name: ArchiveMember(name, sha256(member)) for name, member in entries}
    return (Download("cifar-10-binary.tar.gz", (server.url("/archive"),), sha256(content), members),)


def cifar_entries(folder):
    folder.mkdir()
    made = write_cifar10(folder)
    return made, [(name, (folder / name).read_bytes()) for name in CIFAR10_FILES]


def test_an_archive_gives_its_expected_members_only(tmp_path, server):
    made, entries = cifar_entries(tmp_path / "made")
    link = tarfile.TarInfo("cifar-10-batches-bin/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    foreign = [("../escaped", b"x"), (f"{tmp_path}/absolute", b"x"), (link, b""), ("cifar-10-batches-bin/readme", b"x")]
    get(tmp_path / "data", cifar_source(server, archive([*foreign, *entries]), entries), "cifar10")
    assert files_in(tmp_path / "data/cifar10") == sorted(CIFAR10_FILES)
    assert sorted(os.listdir(tmp_path)) == ["data", "made"]
    np.testing.assert_array_equal(read_cifar10(tmp_path / "data/cifar10", (20, 4)).test_images, made[5][0])
    get(tmp_path / "data", cifar_source(server, b"", entries), "cifar10")  # all there: nothing is asked
    assert len(server.asked) == 1


def test_a_damaged_member_is_named(tmp_path, server):
    _, entries = cifar_entries(tmp_path / "made")
    sources = cifar_source(server, archive(entries), entries)
    get(tmp_path / "data", sources, "cifar10")
    damaged = tmp_path / "data/cifar10" / CIFAR10_FILES[2]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    said = refused(tmp_path / "data", sources, "cifar10")
    assert said.startswith(f"{damaged}: must have the sha256 checksum")


def test_a_member_with_another_checksum_is_not_unpacked(tmp_path, server):
    _, entries = cifar_entries(tmp_path / "made")
    other = [(name, content + b"x") for name, content in entries]
    said = refused(tmp_path / "data", cifar_source(server, archive(entries), other), "cifar10")
    assert "must have the sha256 checksum" in said
    assert files_in(tmp_path / "data") == []


@pytest.mark.parametrize("damage", ["member missing", "member a link", "cut", "no archive"])
def test_a_bad_archive_leaves_nothing(tmp_path, server, damage):
    _, entries = cifar_entries(tmp_path / "made")
    content = archive(entries)
    if damage == "member missing":
        content = archive(entries[:-1])
    elif damage == "member a link":
        link = tarfile.TarInfo(CIFAR10_FILES[-1])
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        content = archive([*entries[:-1], (link, b"")])
    elif damage == "cut":
        content = content[: len(content) // 2]
    else:
        content = b"<html>" * 100
    said = refused(tmp_path / "data", cifar_source(server, content, entries), "cifar10")
    assert "cifar-10-binary.tar.gz" in said
    assert files_in(tmp_path / "data") == []


def test_an_archive_put_there_by_hand_is_unpacked_without_network_and_kept(tmp_path, server):
    _, entries = cifar_entries(tmp_path / "made")
    sources = cifar_source(server, archive(entries), entries)
    home = tmp_path / "data/cifar10"
    home.mkdir(parents=True)
    (home / "cifar-10-binary.tar.gz").write_bytes(server.contents["/archive"])
    get(tmp_path / "data", sources, "cifar10")
    assert server.asked == []
    assert files_in(home) == sorted([*CIFAR10_FILES, "cifar-10-binary.tar.gz"])


def test_the_published_archive_of_california_is_renamed(tmp_path, server):
    server.contents["/archive"] = archive([("CaliforniaHousing/cal_housing.data", b"1,2\n")])
    (public,) = SOURCES["california"]
    members = {inside: ArchiveMember(member.name, sha256(b"1,2\n")) for inside, member in public.members.items()}
    checksum = sha256(server.contents["/archive"])
    home = get(tmp_path, (Download(public.file, (server.url("/archive"),), checksum, members),), "california")
    assert files_in(home) == ["cal_housing.data"]


def test_a_download_shows_its_progress_on_a_terminal(tmp_path, server, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fetch("boston", tmp_path, sources=source(server.url("/file")))
    assert FILE[:10] in terminal.getvalue()
    assert Path(tmp_path / WHOLE).exists()


def test_every_public_file_and_member_has_a_sha256_and_an_https_address():
    for sources in SOURCES.values():
        for one in sources:
            assert all(url.startswith("https://") for url in one.urls)
            assert all(member.checksum.startswith("sha256:") for member in one.members.values())
    with pytest.raises(InputError, match="a checksum must be sha256:"):
        Download(FILE, (), f"md5:{'0' * 32}")


def test_an_address_without_https_is_not_asked(tmp_path, server, monkeypatch):
    monkeypatch.setattr(fetching, "_SCHEMES", ("https",))
    said = refused(tmp_path, source(server.url("/file")))
    assert f"only addresses that begin with https are used, not {server.url('/file')}" in said
    assert f"put the file into {tmp_path / 'boston'}" in said
    assert server.asked == []


def test_a_redirection_to_an_address_without_https_is_not_followed(tmp_path, server):
    def answer(request):
        request.send_response(302)
        request.send_header("Location", "ftp://127.0.0.1/file")
        request.end_headers()

    server.answer = answer
    said = refused(tmp_path, source(server.url("/file")))
    assert "only addresses that begin with https are used, not ftp://127.0.0.1/file" in said


@pytest.mark.parametrize("name", ["california", "cifar10", "mnist"])
def test_the_published_files_have_these_checksums(name):
    """The published files themselves, where they are at hand."""
    folder = os.environ.get("EVOMAL_DATA")
    if not folder or missing_files(name, folder):
        pytest.skip(f"EVOMAL_DATA names no folder with the files of {name}")
    assert fetch(name, folder, progress=False) == Path(folder) / name
