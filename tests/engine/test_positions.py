"""Trainings on inputs and targets of every form, looped and stacked, against plain loops of torch."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.engine.task_data import task_content
from evomal.expression import Expression
from evomal.losses import CrossEntropyLoss
from evomal.losses.loss import WeightedTree
from evomal.tasks.inputs import called
from evomal.tasks.task import Task
from tests.engine.position_tasks import (
    ALL,
    RECIPE,
    Tagger,
    attentive_tagging,
    labels_of_pixels,
    one_logit,
    segmentation,
    sentences,
    tagging,
    trained_by_torch,
)

LOG = WeightedTree(Expression.parse("mul(y, log(f))"), [-1.0, 1.0, 1.0])
"""Cross-entropy as an expression; the logarithm is that of f + 1e-7."""
BINARY = WeightedTree(Expression.parse("sub(mul(sub(y, 1), log(sub(1, f))), mul(y, log(f)))"), None)
"""Cross-entropy of one logit."""
SQUARE = WeightedTree(Expression.parse("square(sub(y, f))"), None)


def as_in_torch(outputs, targets):
    """Outputs with their classes in the second dimension."""
    return outputs if outputs.shape[2:] == targets.shape[1:] else outputs.movedim(-1, 1)


def usual_loss(task):
    """The task's own loss as a user would write it."""
    if task.kind == "regression":
        return lambda outputs, batch: F.mse_loss(outputs, batch.targets)
    if task.kind == "multilabel" or has_one_logit(task):
        return lambda outputs, batch: F.binary_cross_entropy_with_logits(
            outputs.view(batch.targets.shape), batch.targets.float()
        )
    return lambda outputs, batch: F.cross_entropy(as_in_torch(outputs, batch.targets), batch.targets)


def forms_of_the_usual_loss(task):
    """An expression by the forest's kernels, one of evomal's modules, and a user's."""
    if task.kind == "regression":
        return [SQUARE, nn.MSELoss()]
    if task.kind == "multilabel":
        return [BINARY, CrossEntropyLoss(kind="multilabel"), nn.BCEWithLogitsLoss()]
    return [BINARY, CrossEntropyLoss()] if has_one_logit(task) else [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()]


def has_one_logit(task):
    return getattr(task.model(), "out_channels", None) == 1


def cost(task, model, part="validation"):
    """The task's metric by hand: the negative log-likelihood or the squared error."""
    own = getattr(task, part)
    with torch.no_grad():
        return usual_loss(task)(called(model, own.inputs), own).item()


def scores(task, losses, mode, *, split=0, device="cpu", graphs=True):
    settings = EngineSettings(
        device=device, meta_steps=1, population=1, training_steps=RECIPE.steps, population_mode=mode, graphs=graphs
    )
    trials = [Trial(loss, RECIPE.lr, 3, split=split) for loss in losses]
    return [score for (score,) in Engine(task, seed=0, settings=settings).run_trials(trials, test=True)]


@pytest.mark.parametrize("make", [*ALL.values(), one_logit, labels_of_pixels], ids=[*ALL, "one logit", "labels"])
def test_trainings_are_those_of_a_plain_loop(make):
    task = make()
    task = task.judged_by("mse" if task.kind == "regression" else "nll")
    model = trained_by_torch(task, usual_loss(task), seed=3)
    expected = cost(task, model), cost(task, model, "test")
    found = train(task, "mse" if task.kind == "regression" else "ce", seed=3, device="cpu", keep_model=True)
    assert (found.validation, found.test) == pytest.approx(expected, rel=1e-4)
    for own, other in zip(found.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)
    for mode in ("stacked", "looped"):
        for score in scores(task, forms_of_the_usual_loss(task), mode):
            assert (score.validation, score.test) == pytest.approx(expected, rel=1e-4)


def test_weights_of_classes_are_those_of_torch():
    weights = [0.5, 1.0, 4.0]
    task = segmentation(class_weight=weights, metric="nll")
    loss = nn.CrossEntropyLoss(torch.tensor(weights))
    expected = cost(task, trained_by_torch(task, lambda outputs, batch: loss(outputs, batch.targets), seed=3))
    assert expected != pytest.approx(cost(task, trained_by_torch(task, usual_loss(task), seed=3)), rel=1e-3)
    for mode in ("stacked", "looped"):
        for score in scores(task, [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()], mode):
            assert score.validation == pytest.approx(expected, rel=1e-4)


def test_weights_of_samples_weigh_all_their_positions():
    task = tagging(sample_weight=np.linspace(0, 3, 60), metric="nll")

    def weighted(outputs, batch):
        costs = F.cross_entropy(outputs.movedim(-1, 1), batch.targets, reduction="none")
        weights = batch.weights[:, None] * (batch.targets != -100)
        return (costs * weights).sum() / weights.sum()

    model = trained_by_torch(task, weighted, seed=3)
    counted = task.validation.select((task.validation.weights > 0).nonzero().flatten())
    with torch.no_grad():
        expected = F.cross_entropy(model(counted.inputs).movedim(-1, 1), counted.targets).item()
    for mode in ("stacked", "looped"):
        for score in scores(task, [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()], mode):
            assert score.validation == pytest.approx(expected, rel=1e-4)


def test_batches_in_which_nothing_counts_change_nothing():
    ids, _, tags = sentences()
    tags[::2] = -100  # with batches of two sentences, some have no tag at all
    recipe = dataclasses.replace(RECIPE, batch_size=2)
    task = Task.from_arrays(ids, tags, model=Tagger, recipe=recipe, metric="nll")

    def own_loss(outputs, batch):
        costs = F.cross_entropy(outputs.movedim(-1, 1), batch.targets, reduction="sum")
        return costs / (batch.targets != -100).sum().clamp(min=1)

    expected = cost(task, trained_by_torch(task, own_loss, seed=3))
    found = train(task, nn.CrossEntropyLoss(), seed=3, device="cpu")
    assert found.validation == pytest.approx(expected, rel=1e-4)
    assert 0.0 in [point.training_loss for point in found.curve]
    for mode in ("stacked", "looped"):
        for score in scores(task, [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()], mode):
            assert score.validation == pytest.approx(expected, rel=1e-4)


def test_another_split_keeps_positions_and_weights():
    task = tagging(sample_weight=np.linspace(0.5, 3, 60), metric="nll")
    losses = [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()]
    found = [score.validation for mode in ("stacked", "looped") for score in scores(task, losses, mode, split=1)]
    assert found == pytest.approx([found[0]] * 6, rel=1e-4)
    assert found[0] != pytest.approx(scores(task, [LOG], "stacked")[0].validation, rel=1e-4)


def test_what_the_model_gives_at_ignored_positions_does_not_matter():
    def altered(outputs, batch):
        return outputs.masked_fill((batch.targets == -100).unsqueeze(-1), 50.0)

    task = tagging(metric="nll")
    usual = usual_loss(task)
    model = trained_by_torch(task, lambda outputs, batch: usual(altered(outputs, batch), batch), seed=3)
    (score,) = scores(task, [LOG], "stacked")
    assert score.validation == pytest.approx(cost(task, model), rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_a_transformer_with_a_padding_mask_is_stacked():
    task, before = attentive_tagging(metric="nll"), torch.backends.mha.get_fastpath_enabled()
    expected = cost(task, trained_by_torch(task, usual_loss(task), seed=3))
    for mode in ("stacked", "looped"):
        assert scores(task, [LOG], mode)[0].validation == pytest.approx(expected, rel=1e-4)
    assert Engine(task, seed=0, settings=EngineSettings(device="cpu", meta_steps=1)).plans[0].mode == "stacked"
    assert torch.backends.mha.get_fastpath_enabled() is before


def test_weights_of_classes_and_samples_are_part_of_what_a_search_depends_on():
    plain = tagging()
    weighted = dataclasses.replace(plain, class_weight=(1.0, 2.0, 3.0))
    part = dataclasses.replace(plain.train, weights=torch.ones(len(plain.train)))
    contents = [task_content(task) for task in (plain, weighted, dataclasses.replace(plain, train=part))]
    assert contents[0] | {"class_weight": [1.0, 2.0, 3.0]} == contents[1]
    assert contents[0]["data"] != contents[2]["data"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_captured_steps_weigh_their_rows(mode):
    task, losses = tagging(class_weight=[1.0, 2.0, 3.0], metric="nll"), [LOG, CrossEntropyLoss(), nn.CrossEntropyLoss()]
    expected = scores(task, losses[:1], mode)[0].validation
    for graphs in (True, False):
        for score in scores(task, losses, mode, device="cuda", graphs=graphs):
            assert score.validation == pytest.approx(expected, rel=1e-3)
