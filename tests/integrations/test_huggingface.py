"""Losses for Trainer, by numbers: what is summed, counted, shifted and refused. The real Trainer is in another file."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F

from evomal.errors import InputError
from evomal.integrations.huggingface import compute_loss_func
from evomal.losses import CrossEntropyLoss, ExpressionLoss, FocalLoss, SquaredErrorLoss

RNG = torch.Generator().manual_seed(0)
LOGITS = torch.randn(4, 6, 5, generator=RNG)
LABELS = torch.randint(5, (4, 6), generator=RNG)
LABELS[:, 0] = LABELS[1, 3:] = LABELS[2] = -100


class CausalLMOutputWithPast(OrderedDict):
    """Named as in Transformers, by which it is recognised."""


class TokenClassifierOutput(OrderedDict):
    """Named as in Transformers."""


def summed(logits, labels):
    return F.cross_entropy(logits.reshape(-1, 5), labels.reshape(-1), reduction="sum")


@pytest.mark.parametrize("items", [17, torch.tensor(17)])
def test_the_sum_is_divided_by_the_items_of_all_accumulated_batches(items):
    compute = compute_loss_func(CrossEntropyLoss())
    found = compute(TokenClassifierOutput(logits=LOGITS), LABELS, num_items_in_batch=items)
    torch.testing.assert_close(found, summed(LOGITS, LABELS) / 17)


def test_without_a_count_it_is_the_mean_over_the_batch():
    found = compute_loss_func(CrossEntropyLoss())(TokenClassifierOutput(logits=LOGITS), LABELS)
    torch.testing.assert_close(found, F.cross_entropy(LOGITS.reshape(-1, 5), LABELS.reshape(-1)))


def test_causal_language_models_predict_the_next_label():
    expected = summed(LOGITS[:, :-1], LABELS[:, 1:]) / (LABELS[:, 1:] != -100).sum()
    compute = compute_loss_func(CrossEntropyLoss())
    torch.testing.assert_close(compute(CausalLMOutputWithPast(logits=LOGITS), LABELS), expected)
    as_tuple = compute_loss_func(CrossEntropyLoss(), shift=True)((LOGITS,), LABELS)
    torch.testing.assert_close(as_tuple, expected)
    unshifted = compute_loss_func(CrossEntropyLoss(), shift=False)
    assert unshifted(CausalLMOutputWithPast(logits=LOGITS), LABELS) == unshifted((LOGITS,), LABELS) != expected


def test_a_batch_of_ignored_labels_costs_nothing():
    logits = LOGITS.clone().requires_grad_()
    for items in (None, 0, 9):
        value = compute_loss_func(FocalLoss())(TokenClassifierOutput(logits=logits), torch.full((4, 6), -100), items)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value == 0
        assert gradient.abs().max() == 0


def test_probabilities_are_counted_by_rows_though_trainer_counts_entries():
    logits, shares = LOGITS[:, 0], LOGITS[:, 1].softmax(1)
    compute, expected = compute_loss_func(CrossEntropyLoss()), F.cross_entropy(logits, shares)
    torch.testing.assert_close(compute({"logits": logits}, shares), expected)
    torch.testing.assert_close(compute({"logits": logits}, shares, num_items_in_batch=shares.numel()), expected)


def test_labels_and_values_are_counted_by_entries():
    bits, values = (LOGITS[:, 1] > 0).float(), LOGITS[:, 1]
    multilabel = compute_loss_func(CrossEntropyLoss(kind="multilabel"))
    found = multilabel({"logits": LOGITS[:, 0]}, bits, num_items_in_batch=40)
    torch.testing.assert_close(found, F.binary_cross_entropy_with_logits(LOGITS[:, 0], bits) / 2)
    regression = compute_loss_func(SquaredErrorLoss())
    torch.testing.assert_close(
        regression((LOGITS[:, :1, 0],), values[:, 0], 8), F.mse_loss(LOGITS[:, 0, 0], values[:, 0]) / 2
    )


@pytest.mark.parametrize("columns", [1, 2])
def test_values_of_minus_100_do_not_count(columns):
    logits, values = LOGITS[:, 0, :columns].clone().requires_grad_(), LOGITS[:, 1, :columns].clone()
    values[1:3] = -100
    kept = torch.tensor([0, 3])
    labels = values.squeeze(1) if columns == 1 else values
    compute, expected = compute_loss_func(SquaredErrorLoss()), F.mse_loss(logits[kept], values[kept])
    found = compute({"logits": logits}, labels)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(compute({"logits": logits}, labels, num_items_in_batch=4 * columns), expected / 2)
    (gradient,) = torch.autograd.grad(found, logits)
    assert (gradient[1:3] == 0).all()
    assert (gradient[kept] != 0).all()


def test_pixels_have_their_classes_in_the_second_dimension():
    logits = LOGITS.movedim(2, 1).reshape(4, 5, 3, 2)
    found = compute_loss_func(CrossEntropyLoss())({"logits": logits}, LABELS.reshape(4, 3, 2))
    torch.testing.assert_close(found, F.cross_entropy(logits, LABELS.reshape(4, 3, 2)))


def test_half_precision_is_summed_in_float32():
    found = compute_loss_func(CrossEntropyLoss())({"logits": LOGITS[:, 1].bfloat16()}, LABELS[:, 1])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, F.cross_entropy(LOGITS[:, 1].bfloat16().float(), LABELS[:, 1]))


def test_the_loss_itself_is_unchanged_and_its_progress_counts():
    loss = ExpressionLoss("mul(y, mul(t, log(f)))")
    compute = compute_loss_func(loss)
    loss.progress = 0.5
    half = compute({"logits": LOGITS[:, 1]}, LABELS[:, 1])
    loss.progress = 1.0
    assert compute({"logits": LOGITS[:, 1]}, LABELS[:, 1]) == 2 * half != 0
    assert loss.reduction == "mean"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: compute_loss_func(torch.nn.MSELoss()), "loss must be one of evomal's losses but got MSELoss"),
        (lambda: compute_loss_func(FocalLoss(reduction="sum")), "for Trainer must be 'mean' but got 'sum'"),
        (lambda: compute_loss_func(FocalLoss(ignore_index=0)), "must be -100, by which Trainer counts, but got 0"),
        (lambda: compute_loss_func(FocalLoss())((LOGITS,), LABELS), "returns a tuple, which does not tell whether"),
        (lambda: compute_loss_func(FocalLoss())({"start": LOGITS}, LABELS), "must hold logits but got start"),
        (lambda: compute_loss_func(FocalLoss())({"logits": 3}, LABELS), "must be a tensor but got int"),
        (lambda: compute_loss_func(FocalLoss())((LOGITS,), None), "the batch must have labels"),
        (lambda: compute_loss_func(FocalLoss(), shift=True)((LOGITS[0],), LABELS[0]),
         r"logits must have shape \(N, T, C\) with shift=True but got \(6, 5\)"),
    ],
)  # fmt: skip
def test_what_is_refused(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
