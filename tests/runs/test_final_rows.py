"""Searches that keep validation rows for their final."""

import dataclasses
import itertools

import pytest
import torch

from evomal.runs import RunStore, preparation
from evomal.runs.finals import Final
from evomal.runs.run_loop import search
from evomal.tasks import task as task_module
from tests.engine.populations import regression
from tests.protocols import ON_RUNGS, ONE_TRAINING
from tests.runs.interrupted import StoppedError, StoppingListener

SHORT = {
    "population": 4, "generations": 1, "training_steps": 10, "filter_steps": 10, "meta_steps": 2, "finalists": 2,
    "final_seeds": 2, "device": "cpu", "seed_with": ("mse", "mae"), "resplit": False,
}  # fmt: skip
PROTOCOLS = pytest.mark.parametrize("protocol", [ON_RUNGS, ONE_TRAINING], ids=["on rungs", "one training"])


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(task_module, "FEWEST_ROWS", 40)


def run(folder=None, protocol=ON_RUNGS, **changes):
    return search(regression(), seed=1, folder=folder, **{**protocol, **SHORT, **changes})


def record_of(folder):
    with RunStore.read(folder) as store:
        return store.settings, store.candidates(), store.trials()


@PROTOCOLS
def test_the_search_itself_never_sees_the_rows_of_its_final(protocol, tmp_path, monkeypatch):
    """With other targets in these rows, all is the same until the final."""
    records = []
    for number, shift in enumerate((0.0, 9.0)):

        def with_rows(task, share, *, generator, shift=shift):
            first, second = (task.validation.select(torch.arange(20) + start) for start in (0, 20))
            moved = dataclasses.replace(second, targets=second.targets + shift)
            return dataclasses.replace(task, validation=first, final=moved)

        monkeypatch.setattr(preparation, "with_final_rows", with_rows)
        folder = tmp_path / str(number)
        run(folder, protocol)
        _, candidates, trials = record_of(folder)
        records.append(
            (
                [(one.genome, one.state, one.fitness) for one in candidates],
                [(one.loss, one.rate, one.seed, one.score) for one in trials if one.stage == "rivals"],
                [one.score for one in trials if one.stage == "final"],
            )
        )
    first, second = records
    assert first[:2] == second[:2]
    assert max(first[2]) < min(second[2])


def test_what_is_kept_is_recorded_and_said(few_rows, tmp_path):
    result = run(tmp_path)
    settings, _, _ = record_of(tmp_path)
    assert settings["settings"]["final_share"] == 0.5
    assert settings["task"]["0"]["final_rows"] == 20
    assert result.final_rows == {"own": 20}
    assert "final rows   20 validation rows of own, which the search had not seen" in str(result).splitlines()


def test_an_interrupted_final_is_resumed_to_the_same_record(few_rows, tmp_path):
    with pytest.raises(StoppedError):
        run(tmp_path / "again", listener=StoppingListener("final"))
    for name in ("again", "whole"):
        run(tmp_path / name)
    with RunStore.read(tmp_path / "again") as again, RunStore.read(tmp_path / "whole") as whole:
        assert again.dump() == whole.dump()


def test_a_record_from_before_is_resumed_without_such_rows(few_rows, tmp_path):
    before = run(tmp_path, final_share=0.0)
    settings, *_ = record_of(tmp_path)
    assert "final_share" not in settings["settings"]
    assert "final_rows" not in settings["task"]["0"]
    again = run(tmp_path)
    assert again.final_rows == before.final_rows == {}
    assert again.final == before.final


def test_a_search_without_a_final_keeps_no_rows(few_rows):
    assert run(finalists=0).final_rows == {}


def test_a_final_that_draws_splits_keeps_no_rows(few_rows):
    assert run(resplit=True).final_rows == {}


def test_few_rows_are_not_divided():
    assert run().final_rows == {}


def test_rows_that_chose_the_losses_are_said_beside_a_lead_that_does_not_allow_for_others(monkeypatch):
    result = run()
    assert result.reused_rows == {"own": 40}
    said = "final rows   40 validation rows of own, which also chose the losses:"
    for leads, unsure in itertools.product((True, False), repeat=2):
        monkeypatch.setattr(Final, "leads", leads)
        monkeypatch.setattr(Final, "may_depend_on_rows", unsure)
        assert (said in str(result)) is (leads and unsure)


@pytest.mark.parametrize("changes", [{"resplit": True}, {"final_share": 0.5}], ids=["splits", "rows"])
def test_a_final_with_splits_or_rows_of_its_own_reuses_none(few_rows, changes):
    assert run(**{"final_share": 0.0, **changes}).reused_rows == {}


def test_a_final_at_one_learning_rate_draws_no_splits():
    assert run(protocol=ONE_TRAINING, resplit=True).reused_rows == {"own": 40}
