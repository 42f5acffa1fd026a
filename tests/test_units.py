"""Units of regression targets: there and back, one for all outputs or one for each."""

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.units import Units


def test_there_and_back():
    units = Units(152.0, 77.0)
    assert (units.mean, units.scale, units.outputs, str(units)) == (152.0, 77.0, None, "mean 152, scale 77")
    raw = torch.tensor([[152.0], [229.0], [75.0]], dtype=torch.float64)
    assert units.standardised(raw).tolist() == [[0.0], [1.0], [-1.0]]
    assert torch.equal(units.raw(units.standardised(raw)), raw)
    assert Units() == Units(0.0, 1.0)
    assert Units((152.0,), (77.0,)) == units


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_several_outputs_have_units_of_their_own(make):
    units = Units((1.0, -2.0), (2.0, 4.0))
    assert (units.outputs, str(units)) == (2, "mean (1, -2), scale (2, 4)")
    assert units.standardised(make([[3.0, 2.0], [1.0, -6.0]])).tolist() == [[1.0, 1.0], [0.0, -1.0]]
    assert units.raw(make([1.0, 1.0])).tolist() == [3.0, 2.0]
    assert Units((1.0, 2.0)).scale == (1.0, 1.0)
    sentence = r"the last dimension of values must be 2, one for each output of the units, but got shape \(3, 1\)"
    with pytest.raises(InputError, match=sentence):
        units.standardised(make([[1.0], [2.0], [3.0]]))


def test_the_dtype_stays():
    for units in (Units(0.1, 3.0), Units((0.1, 0.2), (3.0, 4.0))):
        for values in (torch.ones(3, 2, dtype=torch.float32), np.ones((3, 2), np.float32)):
            assert units.standardised(values).dtype == units.raw(values).dtype == values.dtype


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((float("nan"), 1.0), "mean must be a finite number, or one for each output, but got nan"),
        (("1", 1.0), "mean must be a finite number, or one for each output, but got '1'"),
        ((True, 1.0), "mean must be a finite number, or one for each output, but got True"),
        (((), 1.0), r"mean must be a finite number, or one for each output, but got \(\)"),
        ((0.0, [1.0, [2.0]]), r"scale must be a finite number, or one for each output, but got \[2.0\]"),
        ((0.0, 0.0), "scale must be more than 0 but got 0"),
        ((0.0, (1.0, -3.0)), "scale must be more than 0 but got -3"),
        (((0.0, 1.0), (1.0, 2.0, 3.0)), "scale must have as many numbers as the mean, 2, but got 3"),
    ],
)
def test_what_is_no_unit(numbers, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        Units(*numbers)
