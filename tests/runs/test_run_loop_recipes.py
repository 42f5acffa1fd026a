"""Recipes in searches: the task's own is used, recorded, and must not change."""

import functools
from types import SimpleNamespace

import pytest
import torch

from evomal.errors import InputError
from evomal.runs import RunStore
from evomal.runs.finals_trainer import FinalsTrainer
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks.recipe import Recipe
from tests.engine.populations import regression
from tests.protocols import ON_RUNGS, ONE_TRAINING

SHORT = {
    "population": 4, "generations": 1, "meta_steps": 2, "training_steps": 10, "filter_steps": 10, "device": "cpu",
    "finalists": 1, "final_seeds": 2,
}  # fmt: skip
TRANSFORMER = {"schedule": "cosine", "warmup": 0.1, "clip": 1.0, "lr": 0.02, "batch_size": 32, "steps": 20}


def adamw(decay=0.1):
    return functools.partial(torch.optim.AdamW, weight_decay=decay)


def run(folder, recipe, **changes):
    return search(regression(recipe=recipe), seed=1, folder=folder, **{**SHORT, **changes})


def recorded(folder):
    with RunStore.read(folder) as store:
        return store.settings


@pytest.mark.parametrize("protocol", [ONE_TRAINING, ON_RUNGS], ids=["once", "rungs"])
def test_the_recipe_of_the_task_is_that_of_all_trainings_of_a_search(protocol, tmp_path):
    result = run(tmp_path, Recipe(optimizer=adamw(), **TRANSFORMER), **{**protocol, **SHORT})
    plain = run(None, Recipe(lr=0.02, batch_size=32, steps=20), **{**protocol, **SHORT})
    assert result.rivals["mse"] != plain.rivals["mse"]
    settings = recorded(tmp_path)
    assert settings["optimizer"] is settings["settings"]["optimizer"] is None
    recipe = settings["task"]["0"]["recipe"]
    assert recipe["optimizer"]["makes"] == "AdamW"
    assert (recipe["schedule"], recipe["warmup"], recipe["clip"]) == ("cosine", 0.1, 1.0)
    assert run(tmp_path, Recipe(optimizer=adamw(), **TRANSFORMER), **{**protocol, **SHORT}).rivals == result.rivals
    with pytest.raises(InputError, match=r"task\.0\.recipe\.optimizer\.digest was"):
        run(tmp_path, Recipe(optimizer=adamw(0.2), **TRANSFORMER), **{**protocol, **SHORT})


def test_a_record_has_no_fields_that_older_ones_lack(tmp_path):
    run(tmp_path / "plain", Recipe(lr=0.02, batch_size=32), **{**ONE_TRAINING, **SHORT})
    settings = recorded(tmp_path / "plain")
    assert settings["optimizer"] == settings["settings"]["optimizer"] == "sgd"
    later = {"optimizer", "schedule", "warmup", "clip"}
    assert not later & settings["task"]["0"]["recipe"].keys()
    assert not {"schedule", "warmup", "clip"} & settings["settings"].keys()
    named = {"optimizer": "adam", "schedule": "cosine"}
    run(tmp_path / "named", Recipe(lr=0.02, batch_size=32), **{**ONE_TRAINING, **SHORT, **named})
    settings = recorded(tmp_path / "named")
    assert settings["settings"].items() >= named.items()


@pytest.mark.parametrize(
    ("changes", "milestones"),
    [({}, ((10,), (5,))), ({"milestones": ()}, ((), ())), ({"schedule": "cosine"}, ((), ()))],
    ids=["own", "none", "cosine"],
)
def test_a_final_on_several_tasks_has_the_milestones_that_its_schedule_takes(changes, milestones):
    recipes = [Recipe(steps=40, milestones=(20,)), Recipe(steps=80, milestones=(20,))]
    context = SimpleNamespace(
        settings=SearchSettings(final_steps=20, **changes), seed=1, ladder=object(), is_exchangeable=False
    )
    trainer = FinalsTrainer(
        [regression(recipe=recipe) for recipe in recipes], None, SimpleNamespace(reference=""), context, None, None
    )
    assert trainer._final_rung("final", 2).milestones_by_task == milestones


def test_settings_that_fit_no_recipe_are_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(FinalsTrainer, "train_rivals", lambda trainer: pytest.fail("something was trained"))
    with pytest.raises(InputError, match="milestones are for the schedule step, but the schedule is 'cosine'"):
        run(None, Recipe(lr=0.02, batch_size=32), **{**ON_RUNGS, **SHORT}, schedule="cosine", milestones=(5,))
