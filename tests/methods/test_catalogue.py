"""What every registered method must do, and what each is by its paper."""

import math

import pytest
import torch

import evomal
from evomal.engine.task_data import TaskData
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import CrossEntropyLoss, NeuralLoss, SquaredErrorLoss, TaylorLoss, load_loss, save_loss
from evomal.losses.neural import weight_count
from evomal.methods import METHODS, learned_loss, readable
from evomal.methods.baseline import RIVALS
from evomal.runs import RunStore
from evomal.runs.run_loop import search
from tests.engine.populations import classification, regression
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 6, "generations": 3, "meta_steps": 3, "training_steps": 10, "filter_steps": 20, "device": "cpu",
    "population_mode": "looped", "finalists": 3, "final_seeds": 2,
}  # fmt: skip
TASKS = {"regression": regression, "classification": classification}


def run(method, task, folder=None, **changes):
    return search(task, method=method, seed=1, folder=folder, **{**SHORT, **changes})


class StoppedError(Exception):
    pass


def stop(generation):
    raise StoppedError


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_conformance(method, kind, tmp_path):
    """A loss that trains, readable, saved as it is, told generation by generation, and the same interrupted."""
    state = torch.random.get_rng_state()
    seen = []
    result = run(method, TASKS[kind](), tmp_path / "run", callback=seen.append)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state was touched"
    assert seen == list(result.history)
    assert result.best is not None
    assert math.isfinite(result.best.fitness)
    least = min(entry.best.fitness for entry in result.history if entry.best is not None)
    if method == "baseline":
        assert result.final is None
        assert result.best.fitness == least == result.rivals[result.best.genome]
    else:
        assert result.final.candidates[0][0].fitness == least
        assert result.best.mean == min(scores.mean for _, scores in result.final.candidates)
        assert list(result.rivals) == list(result.final.rivals) == list(RIVALS[kind])
    assert result.best.formula()
    assert result.ending.endswith(("generations are done", "generation is done"))
    task = TASKS[kind]()
    outputs = torch.randn(5, task.outputs, requires_grad=True)
    loss = result.best.loss()
    loss(outputs, task.train.targets[:5]).backward()
    assert torch.isfinite(outputs.grad).all()
    saved = load_loss(tmp_path / "run" / "best.json")
    assert type(saved) is type(loss)
    assert saved(outputs, task.train.targets[:5]).item() == pytest.approx(loss(outputs, task.train.targets[:5]).item())
    assert saved.provenance["method"] == method
    with pytest.raises(StoppedError):
        run(method, TASKS[kind](), tmp_path / "again", callback=stop)
    resumed = run(method, TASKS[kind](), tmp_path / "again")
    assert resumed.best == result.best
    with RunStore.read(tmp_path / "run") as one, RunStore.read(tmp_path / "again") as other:
        assert one.dump() == other.dump()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_works_on_several_tasks(method):
    tasks = [regression(seed=0), regression(seed=1)]
    result = run(method, tasks, generations=1, population=15, across_tasks="mean")
    loss = result.best.loss()
    alone = [evomal.train(task, loss, seed=1, steps=SHORT["training_steps"], device="cpu") for task in tasks]
    assert result.best.fitness == pytest.approx(sum(score.validation for score in alone) / 2, rel=1e-4)


def test_the_baseline_is_the_task_s_loss_trained_once():
    result = run("baseline", regression())
    assert isinstance(result.best.loss(), SquaredErrorLoss)
    assert result.best.formula() == "(f-y)^2"
    assert result.counts == {"evaluated": 1}
    assert result.best.expression is None
    written = run("gp-lfl", regression(), generations=1, population=1, seed_with=("mse",))
    assert written.best.fitness == pytest.approx(result.best.fitness, rel=1e-5)
    assert isinstance(run("baseline", classification()).best.loss(), CrossEntropyLoss)


def test_ml3_tunes_one_network_on_and_on(tmp_path):
    result = run("ml3", regression(), tmp_path)
    assert isinstance(result.best.loss(), NeuralLoss)
    assert len(result.best.weights) == weight_count()
    assert result.counts == {"evaluated": 3}
    with RunStore.read(tmp_path) as store:
        first, second, third = (candidate.weights for candidate in store.candidates())
    assert first != second != third


def test_every_pass_of_ml3_has_initial_weights_and_batches_of_its_own(monkeypatch):
    begin_step, steps, kept = TaskData.begin_step, [], []

    def begun(data, step, **options):
        begin_step(data, step, **options)
        steps.append(step)
        kept.append(len(data.initial_weights._kept))

    monkeypatch.setattr(TaskData, "begin_step", begun)
    run("ml3", regression(), finalists=0)
    assert steps == list(range(3 * SHORT["meta_steps"]))
    assert kept[-1] == SHORT["meta_steps"], "initial weights of a pass that is not repeated are not kept"


def test_the_first_pass_of_ml3_is_ml3_single(tmp_path):
    run("ml3", regression(), tmp_path, finalists=0)
    with RunStore.read(tmp_path) as store:
        first = store.candidates()[0]
    single = run("ml3-single", regression())
    assert (single.best.weights, single.best.fitness) == (first.weights, first.fitness)
    assert single.counts == {"evaluated": 1}
    assert [candidate.weights for candidate, _ in single.final.candidates] == [first.weights]


def test_ml3_stops_when_its_network_is_lost():
    result = run("ml3", regression(), meta_lr=1e30)
    assert result.best is None
    assert result.counts == {"diverged": 1}
    assert result.ending == "generation 1 has no fitness, and any after it would have none"


def test_ml3_whose_only_step_goes_too_far_is_lost_and_no_bad_input():
    result = run("ml3", regression(), meta_lr=1e39, meta_steps=1)
    assert result.counts == {"diverged": 1}


def test_taylorglo_trains_with_every_polynomial():
    result = run("taylorglo", regression())
    assert isinstance(result.best.loss(), TaylorLoss)
    assert result.best.loss().theta.tolist() == list(result.best.genome)
    assert sum(result.counts.values()) == 18
    assert set(result.counts) <= {"evaluated", "diverged"}
    assert "f" in result.best.formula()


@pytest.mark.parametrize("method", ["baseline", "ml3", "taylorglo", "random"])
def test_what_has_no_expressions_to_begin_with_says_so(method):
    with pytest.raises(InputError, match="so it cannot begin with losses"):
        run(method, regression(), seed_with=("mse",))


def test_an_activation_is_for_expressions_only():
    plain, soft = (run("taylorglo", regression(), activation=name) for name in ("identity", "softplus"))
    assert plain.best == soft.best
    assert run("evomal", regression(), activation="softplus").best.loss().activation == "softplus"


def test_workloads_name_candidates_of_each_stage():
    assert METHODS["evomal"].expected_candidates(25) == {
        "gradient_norms": 25,
        "optimise": 18,
        "gains": 18,
        "evaluate": 12,
    }
    assert METHODS["ml3"].expected_candidates(25) == {"optimise_networks": 1, "evaluate_losses": 1}


def test_learned_losses_from_genomes(tmp_path):
    weights = [0.5] * weight_count()
    assert learned_loss("network", weights, kind="regression").layers[0].shape == (50, 2)
    assert readable("network", weights) == "softplus(W3·relu(W2·relu(W1·(f, y))))"
    assert readable("ce", ()) == "-log p"
    assert readable((0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0), ()) == "-2*f*y - f"
    tree = learned_loss(Expression.parse("square(sub(y, f))"), [1.0, 2.0, 2.0], kind="regression")
    assert tree(torch.tensor([[1.0]]), torch.tensor([[3.0]])).item() == pytest.approx(16.0)
    save_loss(learned_loss((1.0,) * 8, (), kind="classification"), tmp_path / "taylor.json")
    assert load_loss(tmp_path / "taylor.json").theta.tolist() == [1.0] * 8
