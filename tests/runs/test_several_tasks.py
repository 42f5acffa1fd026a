"""Searches on several tasks that differ in shape, classes, metric and learning rate: fitness, record, words."""

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
from scipy.special import stdtrit  # type: ignore[import-untyped]
from torch import cuda, nn

import evomal
from evomal.errors import InputError
from evomal.losses import load_loss
from evomal.report.best_losses import best_losses
from evomal.report.loss_table import shown_formula
from evomal.runs import RunStore, run_loop
from evomal.runs.reading import load_run, read_runs
from evomal.runs.run_loop import search
from evomal.runs.trials_of_tasks import combined
from tests.protocols import ON_RUNGS, ONE_TRAINING
from tests.runs import test_finals_training as stopping
from tests.searches import die_in_an_insert, dump_of, forked, is_of_the_final

COMMON = {"population": 6, "generations": 1, "filter_steps": 10, "finalists": 2, "final_seeds": 2, "device": "cpu"}
RUNGS = {**ON_RUNGS, **COMMON, "training_steps": 8, "seed_with": ("ce",), "population_mode": "looped"}
ONCE = {**ONE_TRAINING, **COMMON, "training_steps": 8, "meta_steps": 2, "seed_with": ("ce",)}


def tasks():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 80)
    table = evomal.Task.from_arrays(
        rng.normal(size=(80, 5)) + 2 * np.eye(5)[y], y, model=lambda: nn.Linear(5, 4), name="table"
    )
    bits = np.arange(60) % 2
    images = evomal.Task.from_arrays(
        rng.normal(size=(60, 1, 3, 3)) + bits[:, None, None, None], bits, name="images", metric="auroc",
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(9, 1)), recipe=evomal.Recipe(lr=0.1, batch_size=16),
    )  # fmt: skip
    return [table, images]


class StoppedError(Exception):
    pass


def stop(generation):
    raise StoppedError


@pytest.fixture(scope="module", params=["rungs", "once"])
def finished(request, tmp_path_factory):
    settings = RUNGS if request.param == "rungs" else ONCE
    folder = tmp_path_factory.mktemp("several")
    return folder, settings, search(tasks(), seed=1, folder=folder / "whole", **settings)


def test_fitness_is_the_worst_change_from_the_baseline(finished):
    folder, _, result = finished
    assert (result.metric, result.higher_is_better) == ("worst_change", False)
    assert result.rivals["ce"] == pytest.approx(0, abs=1e-12)
    assert result.final.rivals["ce"].values == pytest.approx([0, 0], abs=1e-12)
    with RunStore.read(folder / "whole") as store:
        raw = store.trials()
        whole = combined(raw, "worst")
        assert store.settings["settings"]["across_tasks"] == "worst"
    assert {trial.task for trial in raw} == {0, 1}
    # What other rows would show is not known of such a fitness, so nothing is computed for it.
    assert not any(trial.left_out for trial in raw)
    assert len(raw) == 2 * len(whole)
    assert {trial.stage for trial in whole} >= {"rivals", "final"}


def test_it_is_resumed_to_the_same_record(finished):
    folder, settings, whole = finished
    with pytest.raises(StoppedError):
        search(tasks(), seed=1, folder=folder / "parts", callback=stop, **settings)
    resumed = search(tasks(), seed=1, folder=folder / "parts", **settings)
    assert resumed.best == whole.best
    assert resumed.by_task == whole.by_task
    with RunStore.read(folder / "whole") as one, RunStore.read(folder / "parts") as other:
        assert one.dump() == other.dump()
    with pytest.raises(InputError, match=r"is the record of another search: settings.across_tasks"):
        search(tasks(), seed=1, folder=folder / "parts", across_tasks="rank", **settings)


@pytest.mark.parametrize("reports", [1, 8])
def test_stopped_in_the_final_it_is_resumed_to_the_same_record(finished, reports, tmp_path):
    folder, settings, whole = finished
    if settings is RUNGS:
        pytest.skip("the same search is killed in the final below")
    with pytest.raises(stopping.StoppedError):
        search(tasks(), seed=1, folder=tmp_path, listener=stopping.Stopping("final", reports), **settings)
    with RunStore.read(tmp_path) as store:
        assert store.ending is None
        assert len(store.complete_chunks()) == len(whole.history)
    resumed = search(tasks(), seed=1, folder=tmp_path, **settings)
    assert (resumed.best, resumed.final, resumed.by_task) == (whole.best, whole.final, whole.by_task)
    assert dump_of(tmp_path) == dump_of(folder / "whole")
    assert (tmp_path / "best.json").read_bytes() == (folder / "whole" / "best.json").read_bytes()


def test_killed_in_the_final_it_is_resumed_to_the_same_record(finished, tmp_path):
    folder, settings, _ = finished
    if settings is not RUNGS:
        pytest.skip("the same search is stopped in the final above")
    if cuda.is_available():
        pytest.skip("autograd has threads there that a forked search would miss")
    whole = dump_of(folder / "whole")
    of_the_final = [line for line in whole.splitlines() if json.loads(line).get("stage") == "final"]
    # Rows of one seed are recorded together: those of the first are, and of the second some on one of the tasks.
    rows = len(of_the_final) // 2 + 3
    child = forked(
        lambda: die_in_an_insert(rows, is_of_the_final),
        lambda: bool(search(tasks(), seed=1, folder=tmp_path, **settings)),
    )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with RunStore.read(tmp_path) as store:
        assert len([trial for trial in store.trials() if trial.stage == "final"]) == len(of_the_final) // 2
    search(tasks(), seed=1, folder=tmp_path, **settings)
    assert dump_of(tmp_path) == whole
    assert (tmp_path / "best.json").read_bytes() == (folder / "whole" / "best.json").read_bytes()


def test_it_is_shown_and_read_in_its_own_units(finished):
    folder, settings, result = finished
    shown = result.summary()
    assert "worst_change" in shown
    assert "task         table: error_rate" in shown
    assert "task         images: auroc" in shown
    assert result.best.lr is None  # the tasks differ in theirs
    run = load_run(folder / "whole")
    assert (run.metric, run.higher_is_better) == ("worst_change", False)
    assert run.rivals == result.rivals
    assert run.final.verdict(run.metric) == result.final.verdict(result.metric)
    assert run.by_task == result.by_task
    assert "On images: auroc" in shown_formula(best_losses(read_runs([folder / "whole"]))[0]).sentence
    provenance = load_loss(folder / "whole" / "best.json").provenance
    assert provenance["metric"] == "worst_change"
    assert "learning_rate" not in provenance
    values = {one.task: one.values for one in result.by_task}
    if settings is RUNGS:
        with RunStore.read(folder / "whole") as store:
            trials = [trial for trial in store.trials() if (trial.stage, trial.loss) == ("final", "ce")]
        assert {trial.rate for trial in trials} > {result.final.rates["ce"]}, "it was trained at another one, too"
        scores = [one.score for one in trials if (one.task, one.rate) == (0, result.final.rates["ce"])]
        assert values["table"]["ce"] == pytest.approx(sum(scores) / len(scores))
    assert all(0 <= value <= 1 for own in values.values() for value in own.values())
    assert next(iter(values["images"])) == result.final.winner[0].place
    if settings is RUNGS:
        assert not result.final.leads
        assert result.final.verdict().endswith("times the learning rate of each task for 20 steps")
        assert result.recommended.lr is None
        assert result.recommended.rate == result.final.rates[result.recommended.name]


def test_mean_rank_among_known_losses():
    result = search(tasks(), seed=1, across_tasks="rank", **{**ONCE, "generations": 1, "finalists": 0})
    assert result.metric == "mean_rank"
    ranks = list(result.rivals.values())
    assert sum(ranks) == pytest.approx(len(ranks) * (len(ranks) + 1) / 2)  # each among all of them, itself too


def test_a_record_without_a_rule_has_the_mean_of_the_costs(tmp_path, monkeypatch):
    several = [dataclasses.replace(task, metric="error_rate") for task in tasks()]
    tiny = {**ONCE, "population": 3, "finalists": 0}
    result = search(several, seed=1, folder=tmp_path, across_tasks="mean", **tiny)
    assert result.metric == "error_rate"
    with RunStore.read(tmp_path) as store:
        assert "across_tasks" not in store.settings["settings"]  # as in records before there were rules
        assert {trial.task for trial in store.trials()} == {None}
    monkeypatch.setattr(run_loop._Search, "_compute_generation", None)  # nothing is left to compute
    assert search(several, seed=1, folder=tmp_path, **tiny).best == result.best


def test_headroom_across_tasks():
    found = evomal.headroom(tasks(), training_steps=6, rungs=(1.0,), tried_rates=1, device="cpu")
    assert found.last("ce").mean == pytest.approx(0, abs=1e-12)
    assert found.noise == pytest.approx(stdtrit(3, 0.975) * found.last(found.best_rival).deviation / 2)  # four seeds
    assert "times the learning rate of each task" in found.sentence(evomal.tasks.metric_display.ShownMetric("x"), None)


def test_trials_of_a_length_that_no_known_loss_was_trained_for_are_left_out(finished):
    folder, _, _ = finished
    with RunStore.read(folder / "whole") as store:
        trials = store.trials()
    own = next(trial for trial in trials if trial.task is not None)
    strange = dataclasses.replace(own, loss="0:0", steps=12_345)
    assert combined([*trials, strange], "worst") == combined(trials, "worst")
