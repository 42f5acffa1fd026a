"""Pages are made once for all who ask, and sent as little as possible."""

import gzip
import shutil

import pytest
from starlette.testclient import TestClient

from evomal.runs import RunStore
from evomal.server import app, kept_pages
from evomal.server.kept_pages import STALE_HEADER
from tests.server.pages import address, application, rows, run
from tests.server.servers import wait_for


def test_a_page_is_made_once_for_all_and_not_for_every_version(tmp_path, monkeypatch):
    folder = run(tmp_path / "run", complete=False)
    pages, made = application(tmp_path), []
    monkeypatch.setattr(app, "run_page", lambda view, *_, **__: made.append(view.version) or "a page")
    monkeypatch.setattr(kept_pages.time, "thread_time", iter((0.0, 1e6, 0.0, 0.0)).__next__)  # the first takes long
    with TestClient(pages.app, base_url="http://localhost") as client:
        first = client.get(address(tmp_path, folder))
        assert client.get(address(tmp_path, folder)).text == "a page"
        again = client.get(address(tmp_path, folder), headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content, len(made)) == (304, b"", 1)
        with RunStore.open(folder) as store:
            store.write_chunk(3, rows(1, first=3))
        wait_for(lambda: STALE_HEADER in client.get(address(tmp_path, folder)).headers)
        assert client.get(address(tmp_path, folder)).headers["etag"] == first.headers["etag"]
        (kept,) = [page for name, page in pages._pages._pages.items() if name[0] == "run"]
        kept._not_before = 0.0
        fresh = client.get(address(tmp_path, folder)).headers
        assert fresh["etag"] != first.headers["etag"]
        assert STALE_HEADER not in fresh
    assert len(made) == 2


@pytest.mark.parametrize("accepted", ["gzip, deflate, br", "gzip;q=1.0", "identity", "gzip;q=0"])
def test_pages_are_compressed_once_for_those_who_accept_it(tmp_path, accepted, monkeypatch):
    pages, compress, made = application(tmp_path), gzip.compress, []
    monkeypatch.setattr(kept_pages.gzip, "compress", lambda *given, **more: made.append(0) or compress(*given, **more))
    client = TestClient(pages.app, base_url="http://localhost")
    answers = [client.get("/", headers={"accept-encoding": accepted}) for _ in range(3)]
    is_compressed = accepted.startswith("gzip") and accepted != "gzip;q=0"
    assert [answer.headers.get("content-encoding") for answer in answers] == ["gzip" if is_compressed else None] * 3
    assert all("no runs yet" in answer.text for answer in answers)
    assert len(made) == 1
    other = client.get("/", headers={"accept-encoding": "identity", "if-none-match": answers[0].headers["etag"]})
    assert other.status_code == (200 if is_compressed else 304)


def test_files_are_sent_once(tmp_path):
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    first = client.get("/static/live.js")
    again = client.get("/static/live.js", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


def test_a_folder_that_is_made_again_is_not_shown_as_it_was(tmp_path):
    place = address(tmp_path, run(tmp_path / "run", task="diabetes"))
    pages = application(tmp_path)
    client = TestClient(pages.app, base_url="http://localhost")
    before = client.get(place)
    shutil.rmtree(tmp_path / "run")
    pages.library.refresh()
    assert client.get(place).status_code == 404
    run(tmp_path / "run", task="another")
    pages.library.refresh()
    after = client.get(place, headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert "another" in after.text
