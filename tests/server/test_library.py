"""One thread keeps runs and comparisons up to date, and tells when something changed."""

import shutil
import threading

import pytest

from evomal.runs import RunStore
from evomal.server.library import Library, key_of
from evomal.verdict.folder import LOG_NAME
from tests.server.pages import rows, run
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
