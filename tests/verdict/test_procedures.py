"""Procedures in comparisons: they share the trainings of their losses, and are logged and resumed like losses."""

import json

import pytest

import evomal
from evomal.engine import Engine
from evomal.errors import InputError
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.engine.test_procedures import classes

LOSSES = ["ce+early-stopping:points=4", "ce+logit-adjustment", "ce+temperature", "focal", "focal+temperature"]
OPTIONS = {"seeds": 2, "rescale": False, "device": "cpu", "final_steps": 20}


@pytest.fixture
def trainings(monkeypatch):
    """The trials that engines run, as (class of the loss, learning rate, seed)."""
    seen, run_trials = [], Engine.run_trials

    def counted(engine, trials, **options):
        seen.extend((type(trial.loss).__name__, trial.lr, trial.seed) for trial in trials)
        return run_trials(engine, trials, **options)

    monkeypatch.setattr(Engine, "run_trials", counted)
    return seen


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_one_training_serves_a_loss_and_its_procedures(mode, trainings):
    task = classes(noise=0.5)
    found = evomal.compare(task, losses=LOSSES, population_mode=mode, **OPTIONS)
    assert len(trainings) == len(set(trainings)) == 2 * 2  # two losses, two seeds
    for name in ("ce", *LOSSES):
        for score in found.entry(name).losses[0].scores:
            alone = evomal.train(task, name, seed=score.seed, steps=20, device="cpu")
            assert (score.steps, score.test) == (alone.steps, pytest.approx(alone.test, rel=1e-5))
            assert score.validation == pytest.approx(alone.validation, rel=1e-5)
    alone = evomal.compare(task, population_mode=mode, **OPTIONS)
    assert [score.test for score in alone.entry("ce").losses[0].scores] == [
        score.test for score in found.entry("ce").losses[0].scores
    ]


def test_rates_are_tuned_for_the_procedure(trainings):
    task = classes(noise=0.5)
    found = evomal.compare(task, losses=["ce+early-stopping:points=4"], tune_lr=3, **OPTIONS)
    assert len(trainings) == len(set(trainings))
    for name in ("ce", "ce+early-stopping:points=4"):
        costs = {
            rate: sum(
                evomal.train(task, name, seed=seed, lr=rate, steps=20, device="cpu").validation for seed in (2000, 2001)
            )
            for rate in found.rates
        }
        assert costs[found.entry(name, "tuned").losses[0].lr] == pytest.approx(min(costs.values()))


def test_a_procedure_is_added_to_a_comparison_and_resumed(tmp_path, trainings):
    task = classes()
    first = evomal.compare(task, folder=tmp_path, **OPTIONS)
    again = evomal.compare(task, losses=["ce+temperature"], folder=tmp_path, **OPTIONS)
    assert again.entry("ce").losses == first.entry("ce").losses
    trained = len(trainings)
    assert evomal.compare(task, losses=["ce+temperature"], folder=tmp_path, **OPTIONS) == again
    assert len(trainings) == trained
    assert evomal.Comparison.from_dict(again.to_dict()) == again


def test_names_of_losses_with_procedures(tmp_path):
    task = classes()
    evomal.save_loss(evomal.losses.FocalLoss(gamma=3.0), tmp_path / "mine.json")
    found = evomal.compare(task, losses=[f"{tmp_path / 'mine.json'}+temperature"], **OPTIONS)
    assert [entry.name for entry in found.entries] == ["ce", "mine+temperature"]
    found = evomal.compare(task, losses={"calibrated": "ce+temperature"}, **OPTIONS)
    assert found.entry("calibrated").losses[0].formula == "-log p + temperature"
    with pytest.raises(InputError, match=r"losses must be different but ce\+temperature is given twice"):
        evomal.compare(task, losses=["ce+temperature", "ce+temperature"], **OPTIONS)


def test_the_command_line_knows_procedures(run):  # noqa: F811
    code, out, _ = run("procedures")
    assert code == 0
    assert "early-stopping  points=20" in out
    rows = json.loads(run("procedures", "--json")[1])
    assert {row["name"]: row["options"] for row in rows}["logit-adjustment"] == {"tau": 1.0}
    words = ("diabetes", "--model", "mlp:hidden=4", "--seeds", "1", "--set", "final_steps=8", "--no-rescale")
    code, out, _ = run("compare", *words, "--losses", "mse+early-stopping:points=2,huber", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)["entries"]] == ["mse", "mse+early-stopping:points=2", "huber"]
