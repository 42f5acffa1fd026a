"""How a run stands."""

from evomal.runs import RunStore
from evomal.runs.canonical import Difference
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import RunState
from tests.figures.records import record, row


def standing_in(folder):
    (run,) = read_runs([folder]).runs
    return run


def test_a_run_is_complete_interrupted_or_running(tmp_path):
    complete = standing_in(record(tmp_path / "a", [row(0, 0, 0.5)]))
    assert (complete.state, complete.ending, complete.forced) == (RunState.COMPLETE, "all generations are done", ())
    interrupted = standing_in(record(tmp_path / "b", [row(0, 0, 0.5)], complete=False))
    assert (interrupted.state, interrupted.ending) == (RunState.INTERRUPTED, None)
    assert interrupted.written is not None
    with RunStore.open(tmp_path / "b"):
        assert standing_in(tmp_path / "b").state is RunState.RUNNING
    assert standing_in(record(tmp_path / "c", [], complete=False)).written is None


def test_what_was_forced_is_told(tmp_path):
    record(tmp_path, [row(0, 0, 0.5)], complete=False)
    with RunStore.open(tmp_path) as store:
        store.force([Difference("threads", "1", "2")])
    assert standing_in(tmp_path).forced == ("threads was 1 but is 2",)
