"""Arguments of a wrong type are refused in one sentence, by every public function."""

import numpy as np
import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.losses import named_loss, starting_layers, starting_weights
from evomal.runs import find_runs
from tests.engine.populations import regression
from tests.verdict.results import comparison

TREE = evomal.Expression.parse("abs(sub(f, y))")


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: evomal.load_loss(1), "path must be a path but got 1"),
        (lambda: evomal.save_loss(named_loss("ce"), 1), "path must be a path but got 1"),
        (lambda: evomal.save_loss(named_loss("ce"), "x", provenance="y"),
        "provenance must be a dictionary but got 'y'"),
        (lambda: evomal.search(None, source="text"), "source must be a dictionary but got 'text'"),
        (lambda: comparison().entry(np.zeros(3)), "name must be a string but got arr"),
        (lambda: evomal.SearchSettings.from_file(None), "path must be a path but got None"),
        (lambda: evomal.SearchSettings().with_texts(3), "a setting must be given as key=value but got 3"),
        (lambda: evomal.Expression(1.0), "the tokens of an expression must be a list of strings but got 1.0"),
        (lambda: evomal.Expression(np.zeros((40, 3))), "must be a list of strings but got arr"),
        (lambda: evomal.Metric(abs, Unprintable(), higher_is_better=True), "must be a string but got an object"),
        (lambda: evomal.losses.NeuralLoss([10**400, 1.0]), "layer 0 must be a matrix of numbers: "),
        (lambda: TREE.subtree("x"), "start must be a whole number but got 'x'"),
        (lambda: TREE.subtree(2**64), "start must be at most 3 but got 18446744073709551616"),
        (lambda: TREE.replaced(0, "f"), "other must be an Expression but got 'f'"),
        (lambda: TREE.latex(digits="x"), "digits must be a whole number but got 'x'"),
        (lambda: TREE.formula(digits=0), "digits must be at least 1 but got 0"),
        (lambda: TREE.formula("nan"), "weights must be a list of numbers but got 'nan'"),
        (lambda: TREE.sympy(epsilon="x"), "epsilon must be a number but got 'x'"),
        (lambda: evomal.losses.NeuralLoss(3), "layers must be a list of three matrices but got 3"),
        (lambda: evomal.losses.TaylorLoss(3), "theta must be a list of numbers but got 3"),
        (lambda: starting_weights(TREE, generator=3), "generator must be a numpy.random.Generator but got 3"),
        (lambda: starting_layers(generator=3), "generator must be a torch.Generator but got 3"),
        (lambda: named_loss(3), "there is no loss named 3: known names are ce"),
        (lambda: named_loss([]), r"there is no loss named \[\]: known names are ce"),
        (lambda: evomal.export(named_loss("ce"), to={1}), r"to must be one of .* but got \{1\}"),
        (lambda: evomal.load_task({}), r"there is no task named \{\}: known names are"),
        (lambda: evomal.load_task("diabetes", torch.zeros(3)), "model must be the name of a model but got tensor"),
        (lambda: evomal.load_task("diabetes", data=3), "data must be a path but got 3"),
        (lambda: evomal.Hardships(outliers="x"), "outliers must be a share of 0 to 1 but got 'x'"),
        (lambda: evomal.Hardships(fraction=torch.ones(3)),
        "fraction must be a share above 0 and at most 1 but got tensor"),
        (lambda: evomal.Units(10**400), "mean must be a finite number, or one for each output, but got"),
        (lambda: evomal.search("diabetes"), "task must be a Task or a list of tasks but got 'diabetes'"),
        (lambda: evomal.search(regression(), callback=3), "callback must be a function, a SearchCallback or a list of"),
        (lambda: evomal.search(regression(), settings=3), "settings must be SearchSettings but got 3"),
        (lambda: evomal.train([3], "mse"), r"task must be a Task or a list of tasks but got \[3\]"),
        (lambda: evomal.train(regression(), "mse", device=3), "device must be auto, cpu, cuda, cuda:0, mps but got 3"),
        (lambda: evomal.train(regression(), "mse", precision=np.zeros(3)), "precision must be one of .* but got array"),
        (lambda: evomal.compare("diabetes"), "task must be a Task but got 'diabetes'"),
        (lambda: evomal.compare([regression()]), r"task must be a Task but got \[Task"),
        (lambda: evomal.export(named_loss("ce"), to="onnx", opset=3), "onnx has no option 'opset'"),
        (lambda: evomal.compare(regression(), folder=3), "folder must be a path but got 3"),
        (lambda: evomal.compare(regression(), losses=3), "losses must be a list of losses, or a mapping from names"),
        (lambda: evomal.compare(regression(), methods="evomal"), "methods must be a list of names but got 'evomal'"),
        (lambda: evomal.transfer(regression(), source=True), "source must be a Task or a list of tasks but got True"),
        (lambda: evomal.losses.FocalLoss(reduction=np.zeros(3)), "reduction must be one of .* but got array"),
        (lambda: evomal.losses.FocalLoss(reduction=Unprintable()), "but got an object of the class Unprintable"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_a_folder_whose_name_is_too_long_is_none():
    with pytest.raises(InputError, match="is not a folder"):
        find_runs("x" * 5000)
