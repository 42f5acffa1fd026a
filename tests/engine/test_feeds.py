"""Data from a source: the numbers of the same data in memory, one reading of a batch for all candidates, any shape."""

import dataclasses
import functools
import pickle

import pytest
import torch
from torch.utils.data import TensorDataset

from evomal.engine import Engine, EngineSettings
from evomal.engine.feeds import BatchFeed, evaluation_batches
from evomal.engine.full_training import train
from evomal.errors import InputError
from evomal.runs.executors.pickling import pickled
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.sources import DatasetSource, PiecesSource
from tests.engine.populations import SMOOTH, regression, weights_of
from tests.engine.streamed_tasks import STREAMED

CPU = torch.device("cpu")
FEED = functools.partial(BatchFeed, size=8, device=CPU, dtype=torch.float32)


def streamed(part: Part, place: str = "training") -> Part:
    return dataclasses.replace(part, source=DatasetSource(TensorDataset(part.inputs, part.targets), place))


def in_pieces(part: Part, *lengths: int) -> Part:
    """The part as batches of these lengths."""
    rows = torch.arange(len(part)).split([*lengths, len(part) - sum(lengths)])
    return dataclasses.replace(part, source=PiecesSource([part.select(own) for own in rows], "training"))


def streaming(task, **changes):
    parts = {name: streamed(getattr(task, name), name) for name in ("train", "validation", "test")}
    return dataclasses.replace(task, **{**parts, **changes})


def equal(one: Part, other: Part) -> bool:
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_batches_of_a_source_are_those_of_the_same_data_in_memory():
    part = regression().train
    feeds = [FEED(own, count=2) for own in (part, streamed(part))]
    memory = None
    for step in (0, 1, 40, 3):
        for feed in feeds:
            if step == 0:
                feed.open([(0, "training"), (1, "training")])
            feed.load(step)
        assert equal(feeds[0].batch(), feeds[1].batch())
        assert all(map(equal, feeds[0].batches(), feeds[1].batches()))
        place = feeds[1].batch().inputs.data_ptr()
        assert memory in (None, place)  # what a captured step reads stays where it is
        memory = place


def test_an_evaluation_sees_every_sample_once_in_order():
    part = regression().test
    for own in (part, streamed(part), in_pieces(part, 3, 11)):
        batches = [*evaluation_batches(own, size=16, device=CPU, dtype=torch.float32)]
        assert torch.equal(torch.cat([batch.inputs for batch in batches]), part.inputs)
        assert torch.equal(torch.cat([batch.targets for batch in batches]), part.targets)


def test_a_training_from_a_source_has_the_bits_of_one_in_memory():
    task = regression()
    scores = [train(own, "mse", steps=25, device="cpu", curve_points=2) for own in (task, streaming(task))]
    assert dataclasses.replace(scores[0]) == dataclasses.replace(scores[1])


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_candidates_from_a_source_have_the_bits_of_those_in_memory(mode):
    settings = EngineSettings(meta_steps=6, training_steps=12, filter_steps=3, population_mode=mode, device="cpu")
    weights = weights_of(SMOOTH[:3])
    found = []
    for task in (regression(), streaming(regression())):
        engine = Engine(task, seed=1, settings=settings)
        optimised = engine.optimise(SMOOTH[:3], weights)
        fitnesses = [engine.evaluate(SMOOTH[:3], [own.weights for own in optimised], seed=seed) for seed in (1, 2)]
        found.append((optimised, fitnesses, engine.gradient_norms(SMOOTH[:3], weights)))
    assert found[0] == found[1]


def test_a_stack_reads_each_batch_once_and_keeps_it():
    calls = []

    class Counted(TensorDataset):
        def __getitem__(self, index):
            calls.append(index)
            return super().__getitem__(index)

    task = regression(recipe=Recipe(lr=0.05, batch_size=10))
    source = DatasetSource(Counted(task.train.inputs, task.train.targets), "training")
    task = dataclasses.replace(task, train=dataclasses.replace(task.train, source=source))
    engine = Engine(task, seed=0, settings=EngineSettings(training_steps=7, population_mode="stacked", device="cpu"))
    first = engine.evaluate(SMOOTH, weights_of(SMOOTH))
    assert len(calls) == 7 * 10
    assert engine.evaluate(SMOOTH, weights_of(SMOOTH)) == first
    assert len(calls) == 7 * 10  # the next generation is trained on batches that were kept


def test_a_model_that_changes_its_inputs_changes_no_batch():
    class Doubling(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x.mul_(2))

    task = regression(lambda: Doubling(4, 1))
    for part in (streamed(task.train), in_pieces(task.train, 30, 7)):
        own = dataclasses.replace(task, train=part)
        scores = [train(own, "mse", steps=30, device="cpu", test=False).curve for _ in range(2)]
        assert [point.training_loss for point in scores[0]] == [point.training_loss for point in scores[1]]


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_batches_of_varying_shape_are_trained_on_stacked_and_looped_alike(mode):
    task = regression()
    varying = dataclasses.replace(
        task, train=in_pieces(task.train, 30, 7, 32), validation=in_pieces(task.validation, 9)
    )
    settings = EngineSettings(meta_steps=4, training_steps=9, population_mode=mode, device="cpu", inner_steps=2)
    engine = Engine(varying, seed=0, settings=settings)
    weights = weights_of(SMOOTH[:2])
    optimised = engine.optimise(SMOOTH[:2], weights)
    assert all(row.diverged_at is None for row in optimised)
    fitnesses = engine.evaluate(SMOOTH[:2], weights)
    alone = engine.evaluate(SMOOTH[1:2], weights[1:])
    assert fitnesses[1].value == pytest.approx(alone[0].value, rel=1e-5)
    score = train(varying, "mse", steps=9, device="cpu")
    assert score.validation == pytest.approx(engine.evaluate(SMOOTH[:1], [[1.0, 1.0, 1.0]])[0].value, rel=1e-4)


def test_memory_is_planned_for_batches_that_are_larger_than_the_sample():
    task = regression(recipe=Recipe(lr=0.05, batch_size=64))
    whole = streamed(task.train)
    sample = dataclasses.replace(task.train.select(torch.arange(16)), source=whole.source)
    plans = [
        Engine(dataclasses.replace(task, train=part), seed=0, settings=EngineSettings(meta_steps=1, device="cpu")).plans
        for part in (whole, sample)
    ]
    assert plans[0][0].predicted_bytes == pytest.approx(plans[1][0].predicted_bytes, rel=0.01)


def test_the_size_of_a_loaders_batches_cannot_be_set():
    part = streamed(regression().train)
    part.source.batch_size = 32
    with pytest.raises(InputError, match="batch_size must be 32, as the training loader makes the batches, but got 8"):
        FEED(part, count=1)


@pytest.mark.parametrize("name", STREAMED)
def test_a_task_that_is_sent_to_another_process_is_the_same(name):
    task = STREAMED[name]()
    loss = "mse" if task.kind == "regression" else "ce"
    scores = [train(task, loss, steps=6, device="cpu")]
    scores.append(train(pickle.loads(pickled(task, "task")), loss, steps=6, device="cpu"))
    assert scores[0] == scores[1]
