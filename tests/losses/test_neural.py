"""The matrices of a neural loss: copied to where the data are once, and never a stale copy."""

import pytest
import torch

from evomal.losses import NeuralLoss
from evomal.losses.neural import network_value, starting_layers

OUTPUT = torch.linspace(-1, 1, 12).reshape(4, 3)
TARGET = torch.tensor([0, 1, 2, 0])


def neural(**contract):
    return NeuralLoss(starting_layers(hidden=5, generator=torch.Generator().manual_seed(0)), **contract)


def by_hand(layers):
    value = network_value([layer.float() for layer in layers], OUTPUT.softmax(1), torch.eye(3)[TARGET])
    return value.sum(1).mean().item()


def test_a_matrix_that_changes_in_place_or_is_replaced_counts_at_once():
    loss = neural()
    assert loss(OUTPUT, TARGET).item() == pytest.approx(by_hand(loss.layers))
    with torch.no_grad():
        loss.last.mul_(3)
    changed = loss(OUTPUT, TARGET).item()
    assert changed == pytest.approx(by_hand(loss.layers))
    loss.last = loss.last * 2
    assert loss(OUTPUT, TARGET).item() == pytest.approx(by_hand(loss.layers))
    assert loss(OUTPUT, TARGET).item() != changed


def test_another_dtype_gets_its_own_copy():
    loss = neural()
    single, double = loss(OUTPUT, TARGET), loss(OUTPUT.double(), TARGET)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert loss(OUTPUT, TARGET).item() == single.item() == pytest.approx(double.item(), rel=1e-6)


def test_training_follows_a_look_in_inference_mode():
    loss, output = neural(), OUTPUT.clone().requires_grad_()
    with torch.inference_mode():
        looked = loss(OUTPUT, TARGET).item()
    value = loss(output, TARGET)
    value.backward()
    assert value.item() == looked
    assert output.grad.abs().sum() > 0


def test_matrices_made_in_inference_mode_can_be_used():
    with torch.inference_mode():
        loss = neural()
    assert loss(OUTPUT, TARGET).item() == pytest.approx(by_hand(loss.layers))


def test_matrices_that_require_a_gradient_are_trained_through():
    layers = [layer.requires_grad_() for layer in neural().layers]
    loss = NeuralLoss(layers)
    for _ in range(2):
        loss(OUTPUT, TARGET).backward()
    assert all(layer.grad.abs().sum() > 0 for layer in layers)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_step_does_not_wait_for_the_device():
    loss, output, target = neural(), OUTPUT.cuda(), TARGET.cuda()
    expected = loss(output, target).item()
    torch.cuda.set_sync_debug_mode("error")
    try:
        value = loss(output, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert value.item() == expected == pytest.approx(by_hand(loss.layers), rel=1e-5)
