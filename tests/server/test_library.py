"""One thread keeps runs and comparisons up to date, and tells when something changed."""

import dataclasses
import math
import os
import shutil
import threading

import pytest
from starlette.testclient import TestClient

from evomal.runs import RunStore
from evomal.runs.recorded_run import RunState
from evomal.server import library as library_module
from evomal.server.library import Library, key_of
from evomal.server.run_page import pair_chart
from evomal.server.summaries import summary_of
from evomal.verdict.folder import LOG_NAME
from tests.server.pages import application, rows, run
from tests.server.servers import wait_for


def test_folders_come_and_go(tmp_path):
    library = Library(tmp_path)
    library.refresh()
    assert library.runs == {}
    folder = run(tmp_path / "deep" / "er" / "run")
    (tmp_path / "linked").symlink_to(folder.parent)
    assert library.refresh()
    assert [one.name for one in library.runs.values()] == ["deep/er/run"]
    assert library.refresh() is False
    shutil.rmtree(folder)
    assert library.refresh()
    assert library.runs == {}


def test_the_thread_tells_of_changes_and_ends(tmp_path):
    folder, told = run(tmp_path / "run", complete=False), threading.Event()
    library = Library(tmp_path, told.set)
    library.start()
    try:
        assert told.wait(20)
        followed = wait_for(lambda: library.runs.get(key_of(folder, tmp_path)))
        wait_for(lambda: followed.view.generations == 3)
        with RunStore.open(folder) as store:
            store.write_chunk(3, rows(1, first=3))
            followed.expected_until = float("inf")
            wait_for(lambda: followed.summary.generations == 4)
            wait_for(lambda: followed.summary.is_running)
    finally:
        library.stop()
    assert not library._thread.is_alive()


@pytest.mark.parametrize(("generations", "state"), [(5, "complete"), (3, "interrupted")])
def test_a_summary_says_how_far_a_run_came(tmp_path, generations, state):
    run(tmp_path / "run", generations, complete=state == "complete")
    library = Library(tmp_path)
    library.refresh()
    (summary,) = [one.summary for one in library.runs.values()]
    assert (str(summary.state), summary.progress) == (state, f"{generations} of 5")
    assert summary.baseline == "mse 0.5"
    assert summary.rival == "huber 0.4"
    assert summary.end == ""


@pytest.mark.parametrize("final", [None, {"mse": [math.inf, 0.6], "huber": [0.4, 0.4], "2:1": [0.1, 0.2]}])
def test_a_baseline_that_diverged_stays_the_baseline(tmp_path, final):
    run(tmp_path / "run", rivals={"mse": math.inf, "huber": 0.4}, final=final)
    library = Library(tmp_path)
    library.refresh()
    (one,) = library.runs.values()
    assert (one.summary.baseline, one.summary.rival) == ("mse diverged", "huber 0.4")
    assert one.summary.is_ahead
    chart = pair_chart([one.view, one.view], [one.view.head, one.view.head], ["a", "b"])
    assert ("dashed", "grey", "baseline mse diverged") in chart.legend


def test_trainings_of_a_comparison_are_counted_as_they_come(tmp_path):
    log = tmp_path / "compared" / LOG_NAME
    log.parent.mkdir()
    log.write_text('["",{"comparison":{}}]\n["",{"trainings":[{"training":{}},{"training":{}}]}]\n["",{"training":')
    library = Library(tmp_path)
    library.refresh()
    (followed,) = library.comparisons.values()
    assert (followed.view.trainings, followed.view.state) == (2, "interrupted")
    with log.open("a") as file:
        file.write("{}}]\n")
    library.refresh()
    assert followed.view.trainings == 3
    log.write_text('["",{"trainings":[{"training":{}}]}]\n')
    library.refresh()
    assert followed.view.trainings == 1


def test_times_that_no_calendar_has_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("evomal.runs.store.now", lambda: "0001-01-01T00:00:00+14:00")
    run(tmp_path / "run")
    (tmp_path / "compared").mkdir()
    (tmp_path / "compared" / "comparison.json").touch()
    os.utime(tmp_path / "compared" / "comparison.json", (400_000_000_000, 400_000_000_000))
    pages = application(tmp_path)
    (followed,) = pages.library.runs.values()
    assert (followed.summary.problem, followed.summary.created) == ("", "")
    assert ">compared</a>" in TestClient(pages.app, base_url="http://localhost").get("/").text


@pytest.mark.parametrize("reader", ["summary_of", "recorded_verdicts"])
def test_a_folder_that_causes_any_error_hides_no_other(tmp_path, monkeypatch, reader):
    run(tmp_path / "forged")
    (tmp_path / "forged" / LOG_NAME).touch()
    library, read = Library(tmp_path), getattr(library_module, reader)

    def failing(first, *others):
        if "forged" in str(getattr(first, "folder", first)) and getattr(first, "version", 1):
            raise RuntimeError("what nobody\nthought of")
        return read(first, *others)

    monkeypatch.setattr(library_module, reader, failing)
    run(tmp_path / "good")
    library.refresh()
    summaries = {one.name: one.summary for one in library.runs.values()}
    assert str(summaries["good"].state) == "complete"
    (compared,) = library.comparisons.values()
    told = (summaries["forged"].problem, *compared.view.verdicts.notes)
    assert any("cannot be understood (RuntimeError: what nobody thought of)" in one for one in told)


def test_the_time_left_survives_a_clock_that_is_set_back(tmp_path):
    times = tuple((n, f"2026-01-01T{time}+00:00") for n, time in enumerate(["10:00:10", "10:00:20", "09:00:00"]))
    folder = run(tmp_path / "run", complete=False)
    library = Library(tmp_path)
    library.refresh()
    (followed,) = library.runs.values()
    head = dataclasses.replace(followed.view.head, state=RunState.RUNNING)
    view = dataclasses.replace(followed.view, head=head, times=times)
    assert summary_of(view, "key", folder.name).end == "2026-01-01T09:00:20Z"  # two more generations of ten seconds
