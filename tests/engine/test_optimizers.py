"""Optimizers, schedules, warm-up and clipping: looped and stacked trainings beside the usual loop of torch."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, ReduceLROnPlateau, StepLR

from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.engine.optimizers import Schedule, recipe_record
from evomal.engine.resolve import initial_model
from evomal.engine.row_losses import RowLoss
from evomal.engine.task_data import task_content
from evomal.engine.training import Training, TrainingSetup
from evomal.errors import InputError
from evomal.losses import CrossEntropyLoss, SquaredErrorLoss
from evomal.randomness import isolated_torch
from evomal.tasks.optimizers import SCHEDULES
from evomal.tasks.parts import Batches
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import network, regression, with_recipe

STEPS, WARMUP, LR = 16, 4, 0.03
CPU = torch.device("cpu")
TASK = regression()


def without_decay_of_biases(parameters):
    matrices, vectors = ([one for one in parameters if (one.ndim > 1) is wanted] for wanted in (True, False))
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": 1e-4}]
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1, betas=(0.8, 0.9), eps=1e-6)


def slower_first_layer(model):
    return torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters()}], lr=0.1,
                           momentum=0.5)  # fmt: skip


def one_cycle(optimizer, steps):
    return OneCycleLR(optimizer, LR, total_steps=steps, base_momentum=0.5, max_momentum=0.9)


def cosine(optimizer):
    return CosineAnnealingLR(optimizer, STEPS - WARMUP)


def warm(optimizer, step):
    """The learning rates of the warm-up, or False after it."""
    for group in optimizer.param_groups if step < WARMUP else ():
        group["lr"] = group["full"] * ((step + 1) / (WARMUP + 1))
    return step < WARMUP


def usual_loop(make_optimizer, make_scheduler=None, *, lr=LR, clip=None, warmup=False, seed=3):
    """The model after a training as people write it."""
    model = initial_model(TASK, seed).train()
    optimizer = make_optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = group["full"] = lr * (group["lr"] / optimizer.defaults["lr"])
    batches, scheduler = Batches(len(TASK.train), 32, seed=seed, purpose="training"), None
    for step in range(STEPS):
        if warmup and step == WARMUP:
            for group in optimizer.param_groups:
                group["lr"] = group["full"]
        if not (warmup and warm(optimizer, step)) and scheduler is None and make_scheduler is not None:
            scheduler = make_scheduler(optimizer)
        rows = batches[step]
        optimizer.zero_grad()
        F.mse_loss(model(TASK.train.inputs[rows]), TASK.train.targets[rows]).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model.eval()


def fused(kind, **options):
    return lambda model: kind(model.parameters(), lr=LR, fused=True, **options)


def named(kind, **options):
    return lambda model: kind(model.parameters(), lr=LR, **options)


CASES = {
    "sgd, step": (
        {"milestones": (5, 9)},
        fused(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
        lambda optimizer: LambdaLR(optimizer, lambda step: 0.1 ** ((step >= 5) + (step >= 9))), {},
    ),
    "adamw, cosine, warm-up, clipped": (
        {"optimizer": "adamw:beta2=0.98,eps=1e-6", "schedule": "cosine", "warmup": WARMUP, "clip": 0.3},
        fused(torch.optim.AdamW, weight_decay=5e-4, betas=(0.9, 0.98), eps=1e-6), cosine, {"clip": 0.3, "warmup": True},
    ),
    "adam, linear": (
        {"optimizer": "adam", "schedule": "linear:end=0.1", "momentum": 0.0},
        fused(torch.optim.Adam, weight_decay=5e-4),
        lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS), {},
    ),
    "sgd, one cycle, clipped": (
        {"schedule": "one-cycle:rise=0.5", "clip": 0.1},
        fused(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
        lambda optimizer: OneCycleLR(optimizer, LR, total_steps=STEPS, pct_start=0.5, cycle_momentum=False),
        {"clip": 0.1},
    ),
    "function with groups": (
        {"optimizer": without_decay_of_biases, "schedule": cosine, "warmup": WARMUP / STEPS},
        lambda model: without_decay_of_biases(list(model.parameters())), cosine, {"warmup": True},
    ),
    "function of the model": (
        {"optimizer": slower_first_layer, "schedule": functools.partial(StepLR, step_size=3)},
        slower_first_layer, functools.partial(StepLR, step_size=3), {},
    ),
}  # fmt: skip
LOOPED_CASES = {
    "rmsprop": (
        {"optimizer": "rmsprop:alpha=0.9,momentum=0.5", "schedule": "constant", "warmup": WARMUP, "clip": 1.0},
        named(torch.optim.RMSprop, alpha=0.9, momentum=0.5, weight_decay=5e-4), None, {"clip": 1.0, "warmup": True},
    ),
    "nadam": ({"optimizer": "nadam"}, named(torch.optim.NAdam, weight_decay=5e-4), None, {}),
    "sgd with dampening": (
        {"optimizer": "sgd:dampening=0.5", "nesterov": False},
        fused(torch.optim.SGD, momentum=0.9, dampening=0.5, weight_decay=5e-4), None, {},
    ),
    "momentum in cycles": (
        {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=LR, momentum=0.9), "schedule": one_cycle},
        lambda model: torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9),
        lambda optimizer: one_cycle(optimizer, STEPS), {},
    ),
}  # fmt: skip


def with_new(changes):
    return with_recipe(TASK, Recipe(steps=STEPS, lr=LR, batch_size=32, **changes))


@pytest.mark.parametrize("case", [*CASES, *LOOPED_CASES])
def test_a_training_has_the_bits_of_the_usual_loop(case):
    changes, *usual, options = (CASES | LOOPED_CASES)[case]
    score = train(with_new(changes), SquaredErrorLoss(), seed=3, device="cpu", keep_model=True)
    expected = usual_loop(*usual, **options)
    for found, wanted in zip(score.model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("case", CASES)
def test_a_stack_trains_as_the_usual_loop_at_every_learning_rate(case):
    changes, *usual, options = CASES[case]
    task, rates = with_new(changes), (LR, LR / 4)
    engine = engine_of(task, population_mode="stacked")
    trials = [Trial(SquaredErrorLoss(), rate, 3) for rate in rates]
    for (score,), rate in zip(engine.run_trials(trials, test=True), rates, strict=True):
        if case == "sgd, one cycle, clipped":
            usual[1] = functools.partial(
                OneCycleLR, max_lr=rate, total_steps=STEPS, pct_start=0.5, cycle_momentum=False
            )
        model = usual_loop(*usual, lr=rate, **options)
        with torch.no_grad():
            expected = F.mse_loss(model(TASK.test.inputs), TASK.test.targets).item()
        assert score.test == pytest.approx(expected, rel=1e-5)


def engine_of(task, **settings):
    return Engine(task, seed=0, settings=EngineSettings(training_steps=STEPS, meta_steps=1, device="cpu", **settings))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("rmsprop", "the optimizer RMSprop is not one of SGD, Adam and AdamW"),
        ("sgd with dampening", "the optimizer has the option dampening"),
        ("momentum in cycles", "the schedule changes the optimizer's momentum"),
    ],
)
def test_other_optimizers_are_looped_by_rule(case, reason):
    task = with_new(LOOPED_CASES[case][0])
    engine = engine_of(task)
    assert (engine.plans[0].mode, engine.plans[0].reason) == ("looped", reason)
    with pytest.raises(InputError, match=rf"^population_mode stacked is not possible for this recipe: {reason}$"):
        engine_of(task, population_mode="stacked")
    # Trials use one optimizer after the other, and may be scored on the way.
    trials = [Trial(SquaredErrorLoss(), rate, 3) for rate in (LR / 4, LR)]
    found = engine.run_trials(trials, horizons=[5, STEPS])
    assert [scores[-1].validation for scores in found] == [score.validation for (score,) in engine.run_trials(trials)]
    assert found[1][-1].validation == train(task, SquaredErrorLoss(), seed=3, device="cpu").validation


def test_a_schedule_that_stacks_cannot_follow_is_refused_where_it_shows():
    def late(optimizer):
        def change(step):
            optimizer.param_groups[0]["momentum"] = 0.9 if step < 120 else 0.5
            return 1.0

        return LambdaLR(optimizer, change)

    task = with_new({"schedule": late})
    engine = Engine(task, seed=0, settings=EngineSettings(training_steps=130, meta_steps=1, device="cpu"))
    assert engine.plans[0].mode == "stacked"
    with pytest.raises(InputError, match=r"changes the optimizer's momentum at step 120, .* must be looped$"):
        engine.run_trials([Trial(SquaredErrorLoss(), LR, 3)])


def test_parameters_that_no_output_depends_on_are_stacked():
    class Wasteful(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.used(x)

    task = with_recipe(regression(model=Wasteful), Recipe(steps=STEPS, lr=LR, batch_size=32, clip=0.1))
    (score,) = engine_of(task, population_mode="stacked").run_trials([Trial(SquaredErrorLoss(), LR, 3)])[0]
    assert score.validation == pytest.approx(train(task, SquaredErrorLoss(), seed=3, device="cpu").validation, rel=1e-5)


def test_warm_up_and_schedule_follow_the_length_of_the_training():
    recipe = Recipe(steps=100, lr=1.0, schedule="linear", warmup=20)
    model = torch.nn.Linear(2, 2)
    for steps, warmup in ((100, 20), (50, 10), (3, 1)):
        assert recipe.warmup_steps(steps) == recipe.for_steps(steps).warmup_steps(steps) == warmup
        schedule = Schedule(recipe, model, CPU, lr=2.0, steps=steps)
        rates = [schedule.at(step)[0]["lr"] for step in range(steps)]
        assert rates[0] == pytest.approx(2.0 / (warmup + 1))
        assert rates[warmup] == max(rates) == 2.0
        assert rates[-1] == pytest.approx(2.0 / (steps - warmup))
        assert schedule.at(0)[0]["lr"] == rates[0]  # it can go back, as a training that is started again does


@pytest.mark.parametrize("name", [*SCHEDULES, *(f"one-cycle:rise={share}" for share in (0, 0.5, 1)), "cosine:end=1"])
def test_schedules_have_learning_rates_however_short_the_training(name):
    for steps in (1, 2, 3, 4, 10):
        for warmup in (0.0,) if name.startswith("one-cycle") else (0.0, 0.5):
            recipe = Recipe(lr=1.0, schedule=name, warmup=warmup)
            schedule = Schedule(recipe, torch.nn.Linear(2, 2), CPU, lr=2.0, steps=steps)
            assert all(0 <= schedule.at(step)[0]["lr"] <= 2.0 for step in range(steps))


def test_a_function_is_recorded_by_its_name_and_what_it_makes():
    def record(**changes):
        return recipe_record(Recipe(lr=0.1, **changes), network())

    old = {"steps", "lr", "momentum", "nesterov", "weight_decay", "batch_size", "milestones"}
    assert set(record()) == old  # as before there were other fields
    assert record(optimizer="adamw", warmup=0.1)["optimizer"] == "adamw"
    decayed = [functools.partial(torch.optim.AdamW, weight_decay=value) for value in (0.1, 0.1, 0.2)]
    first, same, other = (record(optimizer=factory)["optimizer"] for factory in decayed)
    assert first == same != other
    assert (first["function"], first["makes"]) == ("AdamW", "AdamW")
    ends = [record(schedule=functools.partial(CosineAnnealingLR, T_max=count))["schedule"] for count in (10, 10, 20)]
    assert ends[0] == ends[1] != ends[2]
    content = [task_content(with_recipe(TASK, Recipe(optimizer=factory)))["recipe"] for factory in decayed]
    assert content[0] == content[1] != content[2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": lambda parameters: None}, "the optimizer of a recipe must return an optimizer of torch but got"),
        ({"optimizer": torch.optim.LBFGS}, "must take a step without a closure, but LBFGS needs one"),
        ({"optimizer": "muon"}, "the optimizer muon cannot train this model: Muon only supports 2D parameters"),
        ({"schedule": lambda optimizer: 3}, "the schedule of a recipe must make a torch scheduler but made 3"),
        ({"schedule": lambda optimizer: 1 / 0}, "the schedule of the recipe failed: ZeroDivisionError"),
        ({"schedule": ReduceLROnPlateau}, "ReduceLROnPlateau needs a metric"),
    ],
)
def test_functions_that_make_something_else_are_refused(changes, sentence):
    with pytest.raises(Exception, match=sentence) as caught:
        train(with_new(changes), SquaredErrorLoss(), device="cpu")
    assert caught.type.__module__ == "evomal.errors"


def test_the_optimizer_of_a_function_decides_on_its_weight_decay():
    task = with_new({"optimizer": torch.optim.AdamW})
    with pytest.raises(InputError, match=r"^weight_decay cannot be changed to 0\.1, as a function makes"):
        train(task, SquaredErrorLoss(), weight_decay=0.1, device="cpu")
    given = {"weight_decay": 0.1, "optimizer": "adamw", "momentum": 0.5}
    assert train(task, SquaredErrorLoss(), device="cpu", **given).outcome == "trained"


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_a_function_of_the_model_is_given_the_users_model(mode):
    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3)

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    def head_only(model):
        return torch.optim.Adam(model.head.parameters())

    tokens = np.arange(400).reshape(100, 4) % 5
    recipe = Recipe(steps=STEPS, lr=LR, batch_size=32, optimizer=head_only)
    task = Task.from_arrays(tokens, tokens % 3, model=Tagger, recipe=recipe)  # a class for each token
    score = train(task, "ce", device="cpu", keep_model=True)
    assert torch.equal(score.model.embedding.weight, initial_model(task, 0).state_dict()["model.embedding.weight"])
    (found,) = engine_of(task, population_mode=mode).run_trials([Trial(CrossEntropyLoss(), LR, 0)], test=True)[0]
    assert found.test == score.test


class Counting(torch.optim.SGD):
    """Counts its steps in an option of its groups, as optimizers do that estimate their own learning rate."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
        self.param_groups[0]["taken"] = 0

    def step(self, closure=None):
        group = self.param_groups[0]
        group["taken"] += 1
        for parameter in group["params"]:
            parameter.data.add_(parameter.grad, alpha=-group["lr"] / group["taken"])


def counting(parameters):
    return Counting(parameters, LR)


def test_a_schedule_leaves_options_alone_that_an_optimizer_changes():
    task = with_new({"optimizer": counting, "schedule": cosine})
    score = train(task, SquaredErrorLoss(), seed=3, device="cpu", keep_model=True)
    expected = usual_loop(lambda model: counting(model.parameters()), cosine)
    for found, wanted in zip(score.model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(found, wanted)


def test_a_training_that_starts_again_forgets_what_its_optimizer_knew():
    setup = TrainingSetup(with_new({}), Recipe(steps=STEPS, lr=LR, batch_size=32, optimizer=counting), 3, CPU)
    training = Training(setup, RowLoss(SquaredErrorLoss()))
    with isolated_torch(3):
        assert training.run().value == training.run().value


def test_options_that_an_earlier_training_ended_with_are_not_kept():
    def ends_with_less_momentum(optimizer):
        def factor(step):
            optimizer.param_groups[0]["momentum"] = 0.9 if step < 5 else 0.1
            return 1.0

        return LambdaLR(optimizer, factor)

    recipe = Recipe(steps=STEPS, lr=LR, batch_size=32, schedule=ends_with_less_momentum)
    training = Training(TrainingSetup(with_new({}), recipe, 3, CPU), RowLoss(SquaredErrorLoss()))
    with isolated_torch(3):
        assert training.run().value == training.run().value
