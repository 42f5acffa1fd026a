"""Recipes: what they refuse, what they know of optimizers and schedules, and how they change with the length."""

import functools

import pytest
import torch

from evomal.errors import InputError
from evomal.settings import SearchSettings
from evomal.tasks.optimizers import OPTIMIZERS, optimizer_named
from evomal.tasks.recipe import Recipe, final_recipe


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": "adamm"}, "there is no optimizer named 'adamm': did you mean 'adam'?"),
        ({"optimizer": "adam:betta=1"}, "adam has no option 'betta': its options are beta1, beta2, eps, amsgrad"),
        ({"optimizer": "sgd:momentum=0.5"}, "sgd has no option 'momentum': its options are dampening"),
        ({"optimizer": "adam:beta1=2"}, "the options of the optimizer adam:beta1=2 are refused by torch: Invalid beta"),
        ({"optimizer": 3}, "optimizer must be a name or a function that makes one but got 3"),
        ({"schedule": "cosin"}, "there is no schedule named 'cosin': did you mean 'cosine'?"),
        ({"schedule": "cosine:end=2"}, "cosine: end must be from 0 to 1 but got 2"),
        ({"schedule": None}, "schedule must be a name or a function that makes one but got None"),
        ({"schedule": "cosine", "milestones": (5,)}, "milestones are for the schedule step, but the schedule is 'cos"),
        ({"warmup": 1.0}, "warmup must be a finite number of at least 0 and less than 1 but got 1.0"),
        ({"warmup": 10_000}, "warmup must be at most 9999 but got 10000"),
        ({"warmup": -1}, "warmup must be at least 0 but got -1"),
        ({"schedule": "one-cycle:rise=0.2", "warmup": 0.1}, "warmup must be 0 for the schedule one-cycle, which rises"),
        ({"clip": 0.0}, "clip must be a finite number of more than 0 but got 0.0"),
        (
            {"optimizer": lambda model: None},
            "lr must be given for an optimizer that is made from the model but got none",
        ),
        ({"optimizer": lambda parameters: 1 / 0}, "lr must be given, as it cannot be read from the function"),
    ],
)
def test_bad_input(changes, sentence):
    with pytest.raises(InputError) as caught:
        Recipe(**changes)
    assert str(caught.value).startswith(sentence)


def test_the_learning_rate_of_a_function_is_that_of_its_optimizer():
    assert Recipe().lr == Recipe(optimizer="adamw").lr == 0.01
    assert Recipe(optimizer=torch.optim.AdamW).lr == 1e-3
    assert Recipe(optimizer=functools.partial(torch.optim.SGD, lr=0.3)).lr == 0.3
    assert Recipe(optimizer=functools.partial(torch.optim.SGD, lr=0.3), lr=0.1).lr == 0.1
    changed = Recipe(lr=0.5).changed(optimizer=torch.optim.AdamW)
    assert (changed.lr, changed.changed(steps=5).lr, changed.changed(lr=0.2).lr) == (1e-3, 1e-3, 0.2)


def test_every_optimizer_of_torch_that_needs_no_closure_has_a_name():
    assert {"sgd", "adam", "adamw", "nadam", "radam", "rmsprop", "adagrad", "adafactor"} <= OPTIMIZERS.keys()
    assert "lbfgs" not in OPTIMIZERS
    assert optimizer_named("nadam:beta1=0.8,momentum_decay=0.01") == (
        torch.optim.NAdam, {"betas": (0.8, 0.999), "momentum_decay": 0.01},
    )  # fmt: skip


def test_a_warm_up_keeps_its_share_of_the_training():
    recipe = Recipe(steps=10_000, warmup=30)
    assert recipe.for_steps(None) == recipe
    short = recipe.for_steps(100)
    assert (short.warmup_steps(100), short.for_steps(2_000).warmup_steps(2_000)) == (0, 6)
    assert Recipe(warmup=0.25).for_steps(10).warmup_steps(10) == 2


def test_only_values_of_a_recipe_can_be_changed():
    with pytest.raises(InputError, match=r"^there is no value of a recipe named 'shedule': did you mean 'schedule'\?$"):
        Recipe().changed(shedule="cosine")
    with pytest.raises(InputError, match=r"^steps must be at least 1 but got 0$"):
        Recipe().warmup_steps(0)


def test_another_schedule_has_no_milestones():
    recipe = Recipe(steps=100, milestones=(50,))
    assert recipe.changed(schedule="cosine").milestones == ()
    assert recipe.changed(lr=0.5).milestones == (50,)
    settings = SearchSettings(final_steps=10, schedule="linear", warmup=0.1, clip=2.0, optimizer="adam", lr=0.5)
    assert final_recipe(recipe, settings) == Recipe(
        steps=10, lr=0.5, optimizer="adam", schedule="linear", warmup=0.1, clip=2.0
    )
    with pytest.raises(InputError, match="milestones are for the schedule step"):
        final_recipe(recipe, settings.with_changes(milestones=(5,)))
