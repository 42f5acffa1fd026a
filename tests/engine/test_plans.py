"""Modes and chunks by rule, and what a model allows."""

import math

import pytest
import torch
from torch import nn

import evomal
from evomal.engine import Engine, EngineSettings, plans
from evomal.engine.functional_model import FunctionalModel
from evomal.engine.plans import capabilities, make_plan
from evomal.errors import InputError, UserCodeError
from evomal.expression import Expression
from evomal.tasks.models import make_model
from tests.engine.populations import classification, dropping, network, normalised, regression
from tests.engine.test_meta_gradient import Recurrent

CPU = torch.device("cpu")


def facts(module, shape):
    return capabilities(FunctionalModel(module, device=CPU), module, torch.randn(4, *shape))


def plan(module, shape, *, device=CPU, batch=128, **settings):
    return make_plan(module, facts(module, shape), EngineSettings(**settings), device=device, batch=batch)


def test_what_models_allow():
    plain = facts(network(), (4,))
    assert (plain.outputs, plain.is_random, plain.forward_mode, plain.stackable, plain.updates_buffers) == (
        1,
        False,
        True,
        "",
        False,
    )
    assert plain.activations == 16 + 16 + 1
    assert facts(dropping(), (4,)).is_random
    assert facts(normalised(), (4,)).updates_buffers
    recurrent = facts(Recurrent(), (6, 4))
    assert not recurrent.forward_mode
    assert "lstm" in recurrent.stackable


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


def test_a_model_that_branches_on_its_inputs_is_trained_one_copy_at_a_time():
    assert "data-dependent control flow" in facts(Branching(4, 1), (4,)).stackable
    compared = evomal.compare(
        regression(lambda: Branching(4, 1)), losses=["mae"], seeds=2, final_steps=3, rescale=False
    )
    assert all(
        math.isfinite(score.test) for entry in compared.entries for loss in entry.losses for score in loss.scores
    )


@pytest.mark.parametrize(
    ("model", "shape", "device", "mode"),
    [
        ("mlp:hidden=64", (10,), "cpu", "stacked"),
        ("mlp", (10,), "cpu", "looped"),
        ("mlp", (10,), "cuda", "stacked"),
        ("lenet5", (1, 28, 28), "cpu", "looped"),
        ("lenet5", (1, 28, 28), "cuda", "stacked"),
        ("allcnnc", (3, 32, 32), "cuda", "looped"),
    ],
)
def test_the_rule(model, shape, device, mode, gpu):
    found = plan(make_model(model, shape, 10), shape, device=torch.device(device))
    assert found.mode == mode
    assert found.reason
    assert found.predicted_bytes > 0


def test_a_large_population_is_cut_into_chunks_that_fit():
    small = plan(network(), (4,), population=10_000)
    assert small.meta_chunk == small.training_chunk == 512
    large = plan(make_model("mlp:hidden=300", (10,), 10), (10,), population=10_000, batch=4096)
    assert 1 <= large.meta_chunk < 512
    assert large.predicted_bytes < 4.1 * 2**30
    assert plan(network(), (4,), population=10_000, chunk=7).training_chunk == 7


def test_what_is_asked_for_is_done_or_refused():
    assert plan(network(), (4,), population_mode="looped").mode == "looped"
    with pytest.raises(InputError, match="stacked is not possible for this model: training changes its buffers"):
        plan(normalised(), (4,), population_mode="stacked")
    with pytest.raises(InputError, match="stacked is not possible for this model: vmap cannot stack it: Batching rule"):
        plan(Recurrent(), (6, 4), population_mode="stacked")


SQUARE = Expression.parse("square(sub(y, f))")
ONE = nn.Linear(4, 1)


def frozen():
    model = nn.Linear(4, 1)
    model.requires_grad_(False)
    return model


def flat():
    return nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))


class Constant(nn.Linear):
    """A model whose outputs in training do not depend on its parameters."""

    def __init__(self):
        super().__init__(4, 1)

    def forward(self, x):
        return torch.from_numpy(super().forward(x).numpy()) if self.training else super().forward(x)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Engine([], seed=0), "at least one task must be given but got none"),
        (lambda: Engine([regression(), classification()], seed=0), "tasks of one search must be of one kind"),
        (
            lambda: Engine(regression(lambda: nn.Linear(3, 1)), seed=0),
            r"the model cannot take the task's inputs of shape \[4\]: RuntimeError: mat1 and mat2 shapes",
        ),
        (lambda: Engine(regression(Constant), seed=0), "this model cannot be differentiated"),
        (lambda: Engine(regression(lambda: nn.Linear(4, 2)), seed=0), "the task has 1 target but the model has 2"),
        (lambda: Engine(classification(lambda: nn.Linear(4, 2)), seed=0), "the task has 3 classes but the model has 2"),
        (lambda: Engine(classification(lambda: nn.Linear(4, 1)), seed=0), "the task has 3 classes but the model has 1"),
        (lambda: Engine(regression(frozen), seed=0), "a model must have parameters to be trained but has none"),
        (lambda: Engine(regression(lambda: ONE), seed=0), "must make a fresh model at each call"),
        (lambda: Engine(["diabetes"], seed=0), "tasks must be a Task or a list of tasks"),
        (
            lambda: Engine(regression(), seed=0, settings=EngineSettings(recipe={"lr": "x"})),
            "lr must be a number but got 'x'",
        ),
        (
            lambda: Engine(
                regression(dropping), seed=0, settings=EngineSettings(device="cpu", tangent="forward")
            ).optimise([SQUARE], [[1.0] * SQUARE.edges]),
            "tangent forward needs one inner step, and a model that has forward-mode derivatives",
        ),
        (lambda: Engine(regression(nn.Flatten), seed=0), "a model must have parameters to be trained but has none"),
        (
            lambda: Engine(regression(flat), seed=0),
            r"a model must give a row of outputs for each of 2 samples but gave \[2\]: keep the dimension",
        ),
        (lambda: Engine(regression(), seed=0, settings=EngineSettings(precision="half")), "precision must be one of"),
    ],
)
def test_bad_input(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_the_record_says_what_was_decided():
    record = Engine(regression(), seed=0, settings=EngineSettings(device="cpu")).record()
    assert record["device"] == "cpu"
    assert record["plans"][0]["mode"] == "stacked"


def test_trees_larger_than_any_before_find_room():
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", meta_steps=2, training_steps=2))
    small, large = Expression.parse("square(sub(y, f))"), Expression(("add",) * 60 + ("y", "f") * 30 + ("f",))
    before = engine.evaluate([small], [[1.0] * small.edges])
    (found,) = engine.optimise([large], [[1.0] * large.edges])
    assert len(found.weights) == large.edges == 120
    assert engine.evaluate([small], [[1.0] * small.edges]) == before


def test_forward_mode_is_tried_only_where_it_may_be_used(monkeypatch):
    def refuse(*_):
        raise AssertionError("tried")

    monkeypatch.setattr(plans, "_has_forward_mode", refuse)
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", meta_steps=1, training_steps=1))
    engine.optimise([SQUARE], [[1.0] * SQUARE.edges])
    with pytest.raises(UserCodeError, match="tried"):
        Engine(regression(), seed=0, settings=EngineSettings(device="cpu", tangent="forward")).optimise(
            [SQUARE], [[1.0] * SQUARE.edges]
        )
