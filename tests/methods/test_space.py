"""A search in the extended space: its trees, its record, its result, and trainings whose loss knows their progress."""

import dataclasses
import json

import pytest
import torch
from torch import nn

import evomal
from evomal.engine import Engine, EngineSettings
from evomal.engine.resolve import class_priors, loss_for_task
from evomal.errors import InputError
from evomal.expression import PAPER, Expression
from evomal.losses import ExpressionLoss
from evomal.losses.loss import WeightedTree
from evomal.methods.spaces import with_space
from evomal.settings import SearchSettings
from evomal.verdict.trials import TrialTrainer

TINY = {
    "population": 6, "generations": 2, "meta_steps": 2, "training_steps": 5, "filter_steps": 5, "device": "cpu",
    "finalists": 0,
}  # fmt: skip


def task_of(kind: str) -> evomal.Task:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(90, 3, generator=rng)
    y = x[:, 0] if kind == "regression" else (x[:, 0] > 0.8).long() + (x[:, 0] > 1.5).long()
    outputs = 1 if kind == "regression" else 3
    return evomal.Task.from_arrays(x.numpy(), y.numpy(), model=lambda: nn.Linear(3, outputs), kind=kind)


@pytest.mark.parametrize("method", ["evomal", "gp-lfl", "random"])
def test_a_search_in_the_extended_space(tmp_path, method):
    task = task_of("classification")
    result = evomal.search(task, method=method, folder=tmp_path, space="extended", preset="paper", **TINY)
    drawn = {token for tree in trees_of(tmp_path) for token in tree.tokens}
    assert drawn - set(PAPER.tokens)
    assert record_of(tmp_path)["settings"]["space"] == ["extended"]
    again = evomal.search(task, method=method, folder=tmp_path, space="extended", preset="paper", **TINY)
    assert str(again.best) == str(result.best)
    with pytest.raises(InputError, match=r"settings\.space was"):
        evomal.search(task, method=method, folder=tmp_path, preset="paper", **TINY)


def test_islands_draw_from_the_space(tmp_path):
    options = {**TINY, "space": ["f", "y", "logp", "margin", "sub", "mul"], "islands": 2}
    evomal.search(task_of("classification"), folder=tmp_path, preset="paper", **options)
    assert {token for tree in trees_of(tmp_path) for token in tree.tokens} == {"f", "y", "logp", "margin", "sub", "mul"}


def test_records_of_the_paper_s_space_do_not_know_it(tmp_path):
    evomal.search(task_of("regression"), folder=tmp_path, preset="paper", **TINY)
    assert "space" not in json.dumps(record_of(tmp_path))
    assert {token for tree in trees_of(tmp_path) for token in tree.tokens} <= set(PAPER.tokens)


SMALL = {**TINY, "first_trees": 200, "rung_seeds": (1, 1)}


def test_the_space_that_fits_unequal_classes_knows_how_frequent_they_are(tmp_path):
    task = task_of("classification")  # 3 to 19 times as many rows of the first class
    assert SearchSettings.preset("quick").space == SearchSettings.preset("thorough").space == ("auto",)
    evomal.search(task, folder=tmp_path, **SMALL)
    assert record_of(tmp_path)["settings"]["space"] == ["paper", "blogp"]
    assert "blogp" in {token for tree in trees_of(tmp_path) for token in tree.tokens}
    before = (tmp_path / "run.sqlite").read_bytes()
    evomal.search(task, folder=tmp_path, **SMALL)
    assert (tmp_path / "run.sqlite").read_bytes() == before


def test_a_record_from_before_the_rule_is_resumed_in_its_space(tmp_path):
    task = task_of("classification")
    evomal.search(task, folder=tmp_path, space="paper", **SMALL)
    before = (tmp_path / "run.sqlite").read_bytes()
    evomal.search(task, folder=tmp_path, **SMALL)
    assert (tmp_path / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("recorded", "asked"), [("extended", "auto"), (["paper", "exp"], "auto"), ("paper", ["auto", "exp"])]
)
def test_a_record_in_another_space_is_refused(tmp_path, recorded, asked):
    task = task_of("classification")
    evomal.search(task, folder=tmp_path, space=recorded, **SMALL)
    with pytest.raises(InputError, match=r"settings\.space"):
        evomal.search(task, folder=tmp_path, space=asked, **SMALL)


def test_the_space_that_fits_other_tasks_is_the_paper_s():
    unequal = task_of("classification")
    classes = torch.arange(len(unequal.train)) % 3
    equal = dataclasses.replace(unequal, train=dataclasses.replace(unequal.train, targets=classes))
    auto = SearchSettings(space=("auto", "exp", "log"))
    assert with_space(auto, [equal]).space == with_space(auto, [task_of("regression")]).space == ("paper", "exp", "log")
    assert with_space(auto, [equal, unequal]).space == ("paper", "blogp", "exp", "log")
    assert with_space(SearchSettings(), [unequal]).space == ("paper",)
    with pytest.raises(InputError, match="unknown name in space 'atuo': did you mean 'auto'"):
        with_space(SearchSettings(space=("atuo",)), [equal])


@pytest.mark.parametrize(("kind", "space"), [("classification", ("paper", "blogp")), ("regression", ("paper",))])
def test_a_comparison_trains_losses_of_the_space_that_fits(kind, space):
    settings = SearchSettings.preset("quick", device="cpu", final_steps=20)
    assert TrialTrainer(task_of(kind), settings=settings)._engine.settings.space == space


def test_the_setting_is_checked_with_the_task(tmp_path):
    assert SearchSettings().space == ("paper",)
    assert SearchSettings().with_texts(["space=paper,exp"]).space == ("paper", "exp")
    with pytest.raises(InputError, match="logp is a terminal of classification"):
        evomal.search(task_of("regression"), folder=tmp_path / "a", space=["paper", "logp"], **TINY)
    with pytest.raises(InputError, match="unknown name in space 'logq'"):
        evomal.search(task_of("regression"), folder=tmp_path / "b", space="logq", **TINY)
    evomal.save_loss(ExpressionLoss("mul(y, logp)", [-1, 1]), tmp_path / "ce.json")
    options = {**TINY, "seed_with": (str(tmp_path / "ce.json"),)}
    with pytest.raises(InputError, match="but logp is not among them: add it to space"):
        evomal.search(task_of("classification"), folder=tmp_path / "c", **options)
    evomal.search(task_of("classification"), folder=tmp_path / "c", space="extended", **options)


def test_the_result_has_the_priors_of_its_task(tmp_path):
    task = task_of("classification")
    evomal.save_loss(ExpressionLoss("mul(y, blogp)", [-1, 1]), tmp_path / "balanced.json")
    options = {**TINY, "population": 1, "generations": 1, "seed_with": (str(tmp_path / "balanced.json"),)}
    result = evomal.search(task, method="gp-lfl", folder=tmp_path / "run", space="extended", filters=(), **options)
    assert result.best.loss().priors == tuple(class_priors(task).tolist())
    assert evomal.load_loss(tmp_path / "run" / "best.json").priors == result.best.loss().priors


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_trials_of_extended_losses_are_trainings_of_their_modules(mode):
    """By the kernels of a forest in the extended space, by autograd in the paper's; `train` is the reference."""
    task = task_of("classification").judged_by("nll")
    texts = ("mul(y, blogp)", "mul(mul(y, logp), add(t, prior))")
    losses = [ExpressionLoss(text, [-1.0] + [1.0] * (Expression.parse(text).edges - 1)) for text in texts]
    expected = [evomal.train(task, loss, steps=20, lr=0.5, device="cpu", seed=3).validation for loss in losses]
    for space in (("extended",), ("paper",)):
        settings = EngineSettings(device="cpu", population_mode=mode, space=space, recipe={"lr": 0.5})
        engine = Engine(task, seed=3, settings=settings)
        found = curve_costs(engine, losses)
        assert found == pytest.approx(expected, abs=1e-6)
        if space == ("extended",):
            trees = [WeightedTree(loss.expression, loss.weights.tolist()) for loss in losses]
            assert curve_costs(engine, trees) == pytest.approx(expected, abs=1e-6)


def curve_costs(engine, losses):
    from evomal.engine.scores import Trial

    trials = [Trial(loss, lr=0.5, seed=3) for loss in losses]
    with engine._context():
        rows = engine._workspace.trials(0).run(trials, horizons=[10, 20])
    return [row[-1].fitness.value for row in rows]


def test_progress_goes_from_zero_to_almost_one():
    seen = []

    class Watched(ExpressionLoss):
        def forward(self, output, target):
            seen.append(self.progress)
            return super().forward(output, target)

    evomal.train(task_of("regression"), Watched("mul(add(t, 1), square(sub(y, f)))", kind="regression"), steps=4)
    assert seen == [0, 0.25, 0.5, 0.75]


def test_priors_of_labels():
    x = torch.randn(40, 2)
    y = torch.zeros(40, 3)
    y[:10, 0], y[:, 1] = 1, 1
    task = evomal.Task.from_arrays(
        x.numpy(), y.numpy(), model=lambda: nn.Linear(2, 3), kind="multilabel", validation=0.25, test=0.25
    )
    rows = len(task.train.targets)
    expected = task.train.targets.double().sum(0).clamp(0.5, rows - 0.5) / rows
    assert torch.equal(class_priors(task), expected)
    placed = loss_for_task(ExpressionLoss("mul(y, blogp)", kind="multilabel"), task)
    assert placed.priors == tuple(expected.tolist())


def record_of(folder):
    from evomal.runs.store import RunStore

    with RunStore.read(folder) as store:
        return store.settings


def trees_of(folder):
    from evomal.runs.store import RunStore

    with RunStore.read(folder) as store:
        return [Expression.parse(candidate.genome) for candidate in store.candidates()]
