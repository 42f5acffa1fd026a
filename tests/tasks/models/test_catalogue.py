"""Models by name: options, and one clear sentence for whatever cannot be made."""

import re

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.tasks.models import make_model


def test_options_reach_the_model():
    assert make_model("mlp:hidden=64", (10,), 1).head.in_features == 64
    assert make_model("mlp", (10,), 1).head.in_features == 1000
    for spec, expected in (("allcnnc", 0.5), ("allcnnc:dropout=0.0", 0.0), ("allcnnc: dropout = 1e-1", 0.1)):
        rates = [m.p for m in make_model(spec, (3, 8, 8), 2).modules() if isinstance(m, torch.nn.Dropout)]
        assert rates == [expected, expected]


def test_numpy_counts_and_lists_are_taken():
    shape = list(np.zeros((5, 4)).shape[1:])
    assert make_model("logistic", shape, np.int64(3)).head.weight.shape == (3, 4)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("resnet81", "there is no model named 'resnet81': did you mean 'resnet18'?"),
        ("LeNet5", "there is no model named 'LeNet5': did you mean 'lenet5'?"),
        ("wrn-28-10", "there is no model named 'wrn-28-10': did you mean 'wrn28-10'?"),
        (
            "transformer" * 10,
            f"there is no model named '{('transformer' * 10)[:58]}…: known names are logistic, mlp, lenet5, alexnet, "
            "vgg16, allcnnc, resnet18, preresnet101, wrn28-10, squeezenet, pyramidnet",
        ),
        ("mlp:hiden=3", "mlp has no option 'hiden': its options are hidden"),
        ("logistic:hidden=3", "logistic has no option 'hidden': it has none"),
        ("mlp:", "mlp has no option '': its options are hidden"),
        ("mlp:hidden=3,", "mlp has no option '': its options are hidden"),
        ("mlp:hidden", "mlp: hidden needs a value, as in mlp:hidden=1000"),
        ("mlp:hidden=", "mlp: hidden needs a value, as in mlp:hidden=1000"),
        ("mlp:hidden=3,hidden=4", "mlp: hidden is given twice"),
        ("mlp:hidden=2.5", "mlp: hidden must be a whole number but got '2.5'"),
        ("mlp:hidden=" + "9" * 5000, f"mlp: hidden must be a whole number but got '{'9' * 58}…"),
        ("mlp:hidden=0", "mlp: hidden must be from 1 to 100000 but got 0"),
        ("mlp:hidden=100001", "mlp: hidden must be from 1 to 100000 but got 100001"),
        ("allcnnc:dropout=much", "allcnnc: dropout must be a number but got 'much'"),
        ("allcnnc:dropout=1", "allcnnc: dropout must be at least 0 and less than 1 but got 1.0"),
        ("allcnnc:dropout=nan", "allcnnc: dropout must be at least 0 and less than 1 but got nan"),
    ],
)
def test_bad_specs(spec, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        make_model(spec, (3, 32, 32), 10)


@pytest.mark.parametrize(
    ("shape", "outputs", "sentence"),
    [
        ((), 1, "mlp: the input shape must be whole numbers of at least 1 but got ()"),
        ((0,), 1, "mlp: the input shape must be whole numbers of at least 1 but got (0,)"),
        ((2.0, 3), 1, "mlp: the input shape must be whole numbers of at least 1 but got (2.0, 3)"),
        ((3,), 0, "mlp: the number of outputs must be whole and at least 1 but got 0"),
        ((3,), True, "mlp: the number of outputs must be whole and at least 1 but got True"),
        ((3,), "10", "mlp: the number of outputs must be whole and at least 1 but got '10'"),
    ],
)
def test_bad_shapes(shape, outputs, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        make_model("mlp", shape, outputs)
