"""Times added up by hand."""

import math

import pytest

from evomal.figures.run_times import run_times
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def test_stages_are_added_up_over_candidates_and_averaged_over_searches(tmp_path):
    first = [
        row(0, 0, 1.0, filter=1.0, optimise=2.0, evaluate=4.0),
        row(1, 0, 1.0, origin="elite", filter=100.0),
        row(1, 1, filter=3.0),
    ]
    record(tmp_path / "a", first)
    record(tmp_path / "b", [row(0, 0, 1.0, filter=2.0, evaluate=2.0)], seed=1, complete=False)
    record(tmp_path / "begun", [], seed=2, complete=False)
    (group,) = run_times(read_runs([tmp_path])).groups
    assert dict(group.stages) == {"filter": 3.0, "optimise": 1.0, "evaluate": 3.0}
    assert group.total == 7.0
    assert group.deviation == pytest.approx(math.sqrt(18))  # of 10 and 4
    assert (group.searches, group.complete, group.generations) == (2, 1, (1, 2))
    assert group.hardware == "cpu, 1 thread"


def test_stages_of_others_are_taken_together(tmp_path):
    record(tmp_path, [row(0, 0, 1.0, training=1.0, tuning=2.0, evaluate=4.0)])
    data = run_times(read_runs([tmp_path]))
    assert data.stages == ("evaluate", "other")
    assert dict(data.groups[0].stages) == {"evaluate": 4.0, "other": 3.0}
    assert math.isnan(data.groups[0].deviation)
    assert data.columns()["mean seconds"] == [4.0, 3.0]


def test_machines_are_named_where_they_differ(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.0)])
    record(tmp_path / "b", [row(0, 0, 1.0)], seed=1, device="cuda:0")
    assert run_times(read_runs([tmp_path])).groups[0].hardware == "cpu, 1 thread; cuda:0"


def test_without_candidates_there_is_a_sentence(tmp_path):
    record(tmp_path, [])
    data = run_times(read_runs([tmp_path]))
    assert (data.groups, data.stages, data.sentence) == ((), (), "nothing is recorded yet in these runs")
