"""Errors of the user's own model and metric: one that strikes everything stops the search, one candidate's does not."""

import pickle

import pytest
import torch

from evomal.engine import Engine, train
from evomal.errors import EvomalError, InputError, StoppedError
from evomal.methods import Failure, Raised
from evomal.methods.candidates import State
from evomal.methods.evaluation import RaisedInWorkerError
from evomal.runs import RunStore
from evomal.runs.callbacks import SearchCallback
from evomal.runs.run_loop import search
from evomal.tasks.metrics import Metric
from evomal.verdict import compare
from tests.engine.populations import network, regression, with_recipe
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 6, "generations": 2, "meta_steps": 3, "training_steps": 10, "filter_steps": 20, "device": "cpu",
}  # fmt: skip


class OddError(Exception):
    """Of a class that nobody else knows."""


def judged_by(measure):
    return regression().judged_by(Metric(measure, "mine", higher_is_better=False))


def line_of(function, offset):
    return f"{__file__}, line {function.__code__.co_firstlineno + offset}"


def refused(task, kind=EvomalError, **changes):
    with pytest.raises(kind) as caught:
        search(task, seed=1, **{**SHORT, **changes})
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("error", [ValueError("two\nlines"), OddError("odd"), AttributeError("x"), KeyError("k")])
@pytest.mark.parametrize("mode", ["looped", "stacked"])
def test_a_metric_that_raises_stops_the_search(error, mode, tmp_path):
    def mine(outputs, targets):
        raise error

    found = refused(judged_by(mine), folder=tmp_path, population_mode=mode)
    message = " ".join(str(error).split())
    assert str(found) == (
        f"the task cannot be trained with its own loss, mse: {type(error).__name__}: {message} ({line_of(mine, 1)})"
    )
    assert not isinstance(found, InputError)
    assert found.__cause__ is error
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


class Mendable:
    """A metric that raises until it is mended."""

    is_broken = True

    def __call__(self, outputs, targets):
        if self.is_broken:
            raise KeyError("k")
        return (outputs - targets).square().mean().item()


def test_a_mended_metric_is_searched_with_in_the_same_folder(tmp_path):
    mine = Mendable()
    refused(judged_by(mine), folder=tmp_path)
    mine.is_broken = False
    result = search(judged_by(mine), seed=1, folder=tmp_path, **SHORT)
    assert result.folder == tmp_path
    mine.is_broken = True
    with pytest.raises(InputError, match="is the record of another search"):
        search(judged_by(mine), seed=1, folder=tmp_path, **SHORT)
    with RunStore.read(tmp_path) as store:
        assert store.candidates(), "a record with results is kept, whatever happens"


def test_a_metric_without_a_finite_value_leaves_no_record(tmp_path):
    refused(judged_by(lambda outputs, targets: float("nan")), InputError, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


def test_a_mended_metric_is_compared_with_in_the_same_folder(tmp_path):
    mine = Mendable()
    options = {"losses": ["mae"], "seeds": 1, "folder": tmp_path, "rescale": False, "final_steps": 5, "device": "cpu"}
    with pytest.raises(EvomalError, match="KeyError"):
        compare(judged_by(mine), **options)
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]
    mine.is_broken = False
    log = tmp_path / "trainings.jsonl"
    compare(judged_by(mine), **options)
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) > 1
    log.write_text(lines[0])  # as a process leaves it that is killed before anything is trained
    compare(judged_by(mine), **{**options, "final_steps": 6})
    with pytest.raises(InputError, match="belongs to another comparison"):
        compare(judged_by(mine), **options)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoppedError])
def test_a_search_that_a_person_stops_at_once_keeps_its_record(tmp_path, error):
    class Stopping(SearchCallback):
        def on_start(self, run):
            raise error("stopped")

    with pytest.raises(error):
        search(regression(), seed=1, folder=tmp_path, callback=Stopping(), **SHORT)
    with RunStore.read(tmp_path) as store:
        assert (store.candidates(), store.trials(), store.ending) == ((), (), None)
    # As do processes that are killed. What holds nothing refuses no other search.
    assert search(regression(), seed=2, folder=tmp_path, **SHORT).folder == tmp_path
    with RunStore.read(tmp_path) as store:
        assert store.settings["seed"] == 2
    with pytest.raises(InputError, match="is the record of another search: seed was 2 but is 1"):
        search(regression(), seed=1, folder=tmp_path, **SHORT)


def test_a_model_that_raises_in_training_stops_the_search():
    class Fragile(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, inputs):
            if self.training and torch.is_grad_enabled() and inputs.shape[0] > 4:
                raise RuntimeError("it fell over")
            return self.net(inputs)

    found = refused(regression(Fragile), population_mode="looped")
    assert f"RuntimeError: it fell over ({line_of(Fragile.forward, 2)})" in str(found)


@pytest.mark.parametrize(
    ("measure", "received"),
    [(lambda outputs, targets: None, "None"), (lambda outputs, targets: torch.ones(2), "a tensor of shape (2,)")],
)
def test_a_metric_that_is_no_number_is_bad_input(measure, received):
    found = refused(judged_by(measure), InputError)
    place = f"{__file__}, line {measure.__code__.co_firstlineno}"
    assert str(found) == f"the metric mine ({place}) must return one number but returned {received}"


def test_a_metric_that_is_never_finite_is_bad_input():
    def mine(outputs, targets):
        return float("nan")

    assert str(refused(judged_by(mine), InputError)) == (
        f"the metric mine ({line_of(mine, 0)}) must be a finite number for a model trained with the task's own loss, "
        "mse, but the validation mine was nan"
    )


def test_a_baseline_that_diverges_is_no_error():
    task = with_recipe(regression(), type(regression().recipe)(lr=1e12, batch_size=32))
    assert search(task, seed=1, **{**SHORT, "generations": 1}).rivals["mse"] == float("inf")


def test_an_error_that_strikes_every_candidate_alone_stops_the_search(tmp_path):
    """The filters see a hundred training rows, and so may a metric that the baseline's validation did not break."""

    def picky(outputs, targets):
        if len(outputs) == 100:
            raise ValueError("a hundred rows are too few")
        return ((outputs - targets) ** 2).mean()

    found = refused(judged_by(picky), folder=tmp_path, filter_samples=100)
    assert str(found) == (
        f"every candidate failed, at filter: ValueError: a hundred rows are too few ({line_of(picky, 2)})"
    )
    assert isinstance(found.__cause__, ValueError)
    with RunStore.read(tmp_path) as store:
        assert store.candidates() == ()
        assert len(store.trials()) == 3


def test_workers_that_are_lost_with_every_candidate_stop_the_search(monkeypatch):
    """As where none has the memory for even one: there is no error then, only the sentence."""
    lost = Failure("its process ran out of memory (2 times)")
    monkeypatch.setattr(Engine, "evaluate", lambda self, *columns, **options: [lost] * len(columns[0]))
    monkeypatch.setattr("evomal.runs.finals_trainer.FinalsTrainer.train_rivals", lambda self: {})
    found = refused(regression(), filters=())
    assert str(found) == "every candidate failed, at evaluate: its process ran out of memory (2 times)"


def test_one_candidate_s_failure_is_an_outcome(tmp_path, monkeypatch):
    evaluate = Engine.evaluate

    def fragile(engine, expressions, weights, **options):
        if any(str(expression) == "abs(sub(y, f))" for expression in expressions):
            raise OddError("not this one")
        return evaluate(engine, expressions, weights, **options)

    monkeypatch.setattr(Engine, "evaluate", fragile)
    seeded = {"seed_with": ("mse", "mae"), "population_mode": "looped", "filters": ("symbolic",)}
    result = search(regression(), seed=1, folder=tmp_path, **{**SHORT, **seeded})
    with RunStore.read(tmp_path) as store:
        failed = [row for row in store.candidates() if row.state is State.FAILED]
    assert [(row.generation, row.index, row.sentence) for row in failed] == [(0, 1, "evaluate failed: not this one")]
    assert result.best is not None


def test_what_a_watcher_raises_is_no_failure_of_a_candidate():
    class SearchListener:
        def __getattr__(self, name):
            return lambda *_, **__: None

        def on_steps(self, stage, steps):
            raise OddError("enough")

    with pytest.raises(OddError, match="enough"):
        search(regression(), seed=1, listener=SearchListener(), **SHORT)
    with pytest.raises(OddError, match="enough"):
        compare(regression(), losses=["mae"], seeds=1, final_steps=20, listener=SearchListener(), device="cpu")


def test_what_a_callback_raises_reaches_the_caller():
    def stop(*_):
        raise OddError("enough")

    with pytest.raises(OddError, match="enough"):
        search(regression(), seed=1, callback=stop, **SHORT)
    with pytest.raises(OddError, match="enough"):
        train(regression(), "mse", steps=20, report=stop, device="cpu")


def test_a_failure_can_be_sent_to_another_process():
    try:
        raise OddError("odd")
    except OddError as error:
        failure = Failure("odd", Raised("OddError", "odd", "mine.py, line 3", error))
    received = pickle.loads(pickle.dumps(failure))
    assert received == failure
    assert str(received.raised) == "OddError: odd (mine.py, line 3)"
    assert isinstance(received.raised.error, RaisedInWorkerError)
    assert "raise OddError" in str(received.raised.error)
