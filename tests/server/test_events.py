"""Followers are told of every new version, and of nothing else."""

import asyncio
import re

import pytest
from starlette.testclient import TestClient

from evomal.runs import RunStore
from evomal.server import events
from tests.server.pages import address, application, rows, run


def told(pages, of, *then):
    """What a follower gets at once, and then after each of the functions."""

    async def follow():
        pages._events.open()
        stream = pages._events.stream(of)
        seen = [await anext(stream), await anext(stream)]
        for change in then:
            waiting = asyncio.ensure_future(anext(stream, "the end"))
            await asyncio.sleep(0)
            await asyncio.to_thread(change)
            seen.append(await asyncio.wait_for(waiting, 10))
        assert pages._events.followers == (seen[-1] != "the end")
        await stream.aclose()
        pages._events.close()
        return seen

    return asyncio.run(follow())


def test_events_tell_versions(tmp_path):
    folder = run(tmp_path / "run", complete=False)
    pages = application(tmp_path)

    def grow():
        with RunStore.open(folder) as store:
            store.write_chunk(3, rows(1, first=3))
        pages.library.refresh()

    seen = told(pages, address(tmp_path, folder).split("/")[-1], grow)
    assert seen[0].startswith("retry:")
    first, second = map(int, re.findall(r"data: (\d+)", "".join(seen)))
    assert first < second
    assert pages._events.followers == 0


def test_other_runs_wake_but_do_not_tell(tmp_path, monkeypatch):
    folder = run(tmp_path / "run")
    monkeypatch.setattr(events, "_KEEP_ALIVE_SECONDS", 0.2)
    pages = application(tmp_path)

    def other():
        run(tmp_path / "other")
        pages.library.refresh()

    assert told(pages, address(tmp_path, folder).split("/")[-1], other)[2] == ": still here\n\n"


def test_the_stream_of_a_run_that_is_removed_ends(tmp_path):
    folder = run(tmp_path / "run")
    pages = application(tmp_path)

    def remove():
        (folder / "run.sqlite").unlink()
        pages.library.refresh()

    assert told(pages, address(tmp_path, folder).split("/")[-1], remove)[2] == "the end"


def test_who_asks_for_the_headers_does_not_follow(tmp_path):
    pages = application(tmp_path)
    answer = TestClient(pages.app, base_url="http://localhost").head("/events?of=*")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert pages._events.followers == 0


@pytest.mark.parametrize(("most", "of", "status"), [(500, "nothing", 404), (0, "*", 503)])
def test_events_of_nothing_and_of_too_many_are_refused(tmp_path, monkeypatch, most, of, status):
    monkeypatch.setattr(events, "MOST_FOLLOWERS", most)
    client = TestClient(application(tmp_path).app, base_url="http://localhost")
    assert client.get(f"/events?of={of}").status_code == status
