"""Inputs as tensors, tuples and dictionaries of tensors."""

import pytest
import torch

from evomal.errors import InputError
from evomal.tasks import inputs as trees
from evomal.tasks.parts import Part, joined_parts

IDS, MASK = torch.arange(12).view(4, 3), torch.ones(4, 3, dtype=torch.bool)
FORMS = [torch.randn(4, 3), (IDS, torch.randn(4, 2)), {"ids": IDS, "mask": MASK}]


@pytest.mark.parametrize("inputs", FORMS, ids=["tensor", "tuple", "dict"])
def test_rows_are_selected_and_joined_in_every_form(inputs):
    assert trees.count(inputs) == 4
    halves = [trees.select(inputs, torch.tensor([0, 1])), trees.select(inputs, torch.tensor([2, 3]))]
    for again in (trees.joined(halves), trees.joined(list(trees.pieces(inputs, 3)))):
        assert type(again) is type(inputs)
        assert all(torch.equal(a, b) for a, b in zip(trees.tensors(again), trees.tensors(inputs), strict=True))
    assert [len(tensor) for tensor in trees.tensors(trees.first(inputs, 3))] == [3] * len(trees.tensors(inputs))


def test_models_are_called_with_the_form_of_their_inputs():
    def model(ids, mask):
        return ids * mask

    expected = IDS * MASK
    assert torch.equal(trees.called(model, (IDS, MASK)), expected)
    assert torch.equal(trees.called(model, {"mask": MASK, "ids": IDS}), expected)
    assert torch.equal(trees.called(torch.neg, IDS), -IDS)


def test_only_floats_change_their_dtype():
    found = trees.moved({"ids": IDS, "mask": MASK, "x": torch.ones(4, 1)}, "cpu", torch.float64)
    assert [tensor.dtype for tensor in trees.tensors(found)] == [torch.int64, torch.bool, torch.float64]


def test_shapes_are_said_in_words():
    assert [trees.sample_shapes(inputs) for inputs in FORMS] == ["[3]", "([3], [2])", "{ids: [3], mask: [3]}"]
    part = Part({"ids": IDS}, torch.zeros(4), torch.ones(4))
    assert repr(part) == (
        "Part(inputs={ids: [4, 3] torch.int64}, targets=[4] torch.float32, weights=[4] torch.float32)"
    )


def test_an_augmentation_needs_one_tensor_of_images():
    images = torch.zeros(2, 1, 4, 4)
    assert trees.image_tensor(images) is images
    with pytest.raises(InputError, match=r"\(samples, channels, height, width\) but one sample has shape \(\[3\], "):
        trees.image_tensor(FORMS[1])


def test_parts_keep_their_weights():
    part = Part(IDS, torch.arange(4), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    chosen = part.select(torch.tensor([3, 1]))
    assert chosen.targets.tolist() == [3, 1]
    assert chosen.weights.tolist() == [4.0, 2.0]
    assert joined_parts((chosen, Part(IDS[:1], torch.tensor([7])))).weights.tolist() == [4.0, 2.0, 1.0]
    assert joined_parts((Part(IDS, torch.arange(4)),) * 2).weights is None
    assert part.to("cpu", torch.float64).weights.dtype == torch.float64
