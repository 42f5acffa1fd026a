"""Downloads: answers of a server on this machine, and archives of strangers, with right and wrong checksums."""

import contextlib
import gzip
import hashlib
import http.server
import io
import os
import random
import tarfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from evomal.errors import InputError
from evomal.tasks.datasets import Download, fetch, fetching
from evomal.tasks.datasets.fetching import ArchiveMember
from tests.fuzzing import json_edits
from tests.fuzzing.oracle import Box, Function
from tests.fuzzing.values import KINDS_OF_FILE, replace_file, text

_FILE, _ARCHIVE, _INSIDE = "boston_house_prices.csv", "boston.tgz", "data/boston.csv"
_CONTENT = b"".join(b"%d,%d\n" % (number, number**2) for number in range(2_000))
_LINKS = ("link", "hard link")
_MEMBERS = ("../../../../forged", "/proc/forged", f"{_INSIDE}/forged", "data", "forged\n", "data/../../forged", _INSIDE)
_ADDRESSES = ("file:///etc/passwd", "ftp://127.0.0.1/forged", "//forged", "http://127.0.0.1:9/", "", "forged", "/file")
_STATUSES = (200, 200, 200, 204, 206, 301, 304, 403, 404, 416, 500, 503)
_HEADERS = (
    ("Content-Length", "1"), ("Content-Length", "999999999999"), ("Content-Length", "-1"), ("Content-Length", "forged"),
    ("Content-Encoding", "gzip"), ("Content-Encoding", "forged"), ("Content-Type", "text/html"),
    ("Transfer-Encoding", "chunked"), ("Content-Disposition", "attachment; filename=../../forged"),
)  # fmt: skip


class Downloads:
    """Fetches one file, plain or in an archive, from a server that answers as the case says."""

    def __init__(self, corpus: Path) -> None:
        self._server: Any = None

    def draw(self, rng: random.Random) -> list[Any]:
        """What is served, how, and what is in the folder before."""
        edits: list[Any] = [("archive", None)] if rng.random() < 0.6 else []
        for _ in range(rng.choice([1, 1, 2])):
            match rng.randrange(8):
                case 0 | 1:
                    edits.append(("bytes", json_edits.drawn_bytes(rng)))
                case 2:
                    edits.append(("status", rng.choice(_STATUSES)))
                case 3:
                    edits.append(("header", rng.choice(_HEADERS)))
                case 4:
                    edits.append(("cut off", rng.random()))
                case 5:
                    edits.append(("redirection", rng.choice(_ADDRESSES)))
                case 6:
                    name = text(rng) if rng.random() < 0.2 else rng.choice(_MEMBERS)
                    edits.append(("member", name, rng.choice(("file", *_LINKS, "fifo", "device", "folder"))))
                case _:
                    edits.append(("before", rng.choice((_FILE, _ARCHIVE, ".unfinished")), rng.choice(KINDS_OF_FILE)))
        if rng.random() < 0.5:
            edits.append(("checksum", "of what is served"))
        return edits

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The server, and the folder of the data."""
        self._server = self._server or _Server()  # a worker's own, as threads do not survive a fork
        named = {edit[0]: edit[1:] for edit in edits}
        whole = _archive([edit[1:] for edit in edits if edit[0] == "member"]) if "archive" in named else _CONTENT
        served = json_edits.edited_bytes(whole, [edit for kind, edit, *_ in edits if kind == "bytes"])
        self._server.answer = (
            served,
            named.get("status", (200,))[0],
            [edit for kind, edit, *_ in edits if kind == "header"],
            int(named["cut off"][0] * len(served)) if "cut off" in named else None,
            named.get("redirection", (None,))[0],
        )
        home = box.here / "data" / "boston"
        home.mkdir(parents=True)
        for kind, *about in edits:
            if kind == "before":
                replace_file(home / about[0], about[1], box.outside)
        checksum = _sha256(served if "checksum" in named else whole)
        members = {_INSIDE: ArchiveMember(_FILE, _sha256(_CONTENT))} if "archive" in named else {}
        source = Download(_ARCHIVE if members else _FILE, (self._server.url,), checksum, members)
        return [Function(lambda: _fetched(box.here / "data", source, served), "fetch", may_connect=True)]


def _fetched(folder: Path, source: Download, served: bytes) -> None:
    """Fetch; a file that is there afterwards, and was not before, is the one that was asked for."""
    path = folder / "boston" / _FILE
    before = set(os.listdir(path.parent))
    with (
        mock.patch.object(fetching, "_SCHEMES", ("http",)),
        mock.patch.object(fetching, "TIMEOUT", 2.0),
        mock.patch.dict(os.environ, NO_PROXY="*"),
    ):
        try:
            fetch("boston", folder, progress=False, sources=[source])
        except InputError:
            assert set(os.listdir(path.parent)) <= before, "a refused file was left"
            raise
    assert path.read_bytes() == (_CONTENT if source.members else served)
    assert set(os.listdir(path.parent)) <= before | {_FILE}, "more than the file was left"


class _Server:
    """Answers every request in the same way."""

    def __init__(self) -> None:
        self.answer: tuple[bytes, int, list[tuple[str, str]], int | None, str | None] = (b"", 200, [], None, None)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    server.respond(self)

            def log_message(self, *_: Any) -> None:
                pass

        made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        made.daemon_threads = True
        self.url = f"http://127.0.0.1:{made.server_port}/file"
        threading.Thread(target=made.serve_forever, daemon=True).start()

    def respond(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Send what the case says."""
        content, status, headers, cut_at, redirection = self.answer
        request.send_response(302 if redirection is not None else status)
        if redirection is not None:
            request.send_header("Location", redirection)
        given = dict(headers)
        for name, value in {"Content-Length": str(len(content)), **given}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content[:cut_at])


def _archive(members: Sequence[tuple[str, str]]) -> bytes:
    """A tar.gz archive of the file, and of what a stranger would put beside it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in [(_INSIDE, "file"), *members]:
            entry = tarfile.TarInfo(name)
            entry.linkname = "../../../../../../outside/victim.txt" if kind in _LINKS else ""
            entry.type = {
                "link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE,
                "device": tarfile.CHRTYPE, "folder": tarfile.DIRTYPE, "file": tarfile.REGTYPE,
            }[kind]  # fmt: skip
            content = _CONTENT if kind == "file" else b""
            entry.size = len(content)
            with contextlib.suppress(ValueError, UnicodeError):  # a name that no archive can hold
                tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
