"""Losses that take part: by name, with options, by file, and what they are called."""

import dataclasses

import pytest
import torch

import evomal
from evomal.engine.row_losses import tree_of
from evomal.errors import InputError
from evomal.losses import CrossEntropyLoss, FocalLoss, save_loss
from evomal.settings import SearchSettings
from evomal.verdict.comparing import compare
from evomal.verdict.contestants import (
    baseline_contestant,
    given_contestant,
    given_contestants,
)
from evomal.verdict.plan import searched_contestants
from tests.engine.populations import classification, regression

SHORT = {"final_steps": 5, "device": "cpu", "threads": 1}


@pytest.fixture
def files(tmp_path):
    found = []
    for folder, tree in (("first", "square(sub(f, y))"), ("second", "abs(sub(f, y))")):
        (tmp_path / folder).mkdir()
        found.append(tmp_path / folder / "best.json")
        save_loss(evomal.ExpressionLoss(tree, kind="regression"), found[-1])
    return found


def test_files_of_one_name_are_distinguished_by_their_folders(files, tmp_path):
    other = tmp_path / "other.json"
    save_loss(evomal.ExpressionLoss("abs(sub(f, y))", kind="regression"), other)
    names = [contestant.name for contestant in given_contestants([*files, other, "mse"], regression())]
    assert names == ["first/best", "second/best", "other", "mse"]


def test_a_comparison_takes_the_results_of_several_runs(files):
    found = compare(regression(), losses=files, seeds=1, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries] == ["mse", "first/best", "second/best"]
    sentence = r"^losses must be different but .*first.best\.json is given twice$"
    with pytest.raises(InputError, match=sentence):
        compare(regression(), losses=[files[0], files[0]], **SHORT)


class Weighted(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, output, target):
        return self.factor * torch.nn.functional.cross_entropy(output, target)


class Opaque(torch.nn.Module):
    """What it was made with cannot be seen."""

    def __init__(self, power):
        super().__init__()
        self._power = power

    def forward(self, output, target):
        return torch.nn.functional.cross_entropy(output, target) ** self._power


WEIGHT = torch.tensor([1.0, 2.0, 3.0])


def learned(tree, **options):
    return evomal.ExpressionLoss(tree, **options)


@pytest.mark.parametrize(
    ("losses", "names"),
    [
        (
            [learned("square(sub(f, y))"), learned("square(sub(f, y))", weights=[1.0, 1.1, 1.2])],
            ["learned", "learned 2"],
        ),
        ([CrossEntropyLoss(weight=WEIGHT), "ce"], ["ce (weight=[1, 2, 3])"]),
        ([FocalLoss(2.0), FocalLoss(3.0)], ["focal", "focal (gamma=3)"]),
        (
            [
                torch.nn.CrossEntropyLoss(),
                torch.nn.CrossEntropyLoss(WEIGHT),
                torch.nn.CrossEntropyLoss(label_smoothing=0.1),
            ],
            ["CrossEntropyLoss", "CrossEntropyLoss (weight=[1, 2, 3])", "CrossEntropyLoss (label_smoothing=0.1)"],
        ),
        ([Weighted(1.0), Weighted(2.0)], ["Weighted", "Weighted (factor=2)"]),
        ([Opaque(1.0), Opaque(2.0)], ["Opaque", "Opaque 2"]),
        ({"first": learned("square(sub(f, y))"), "second": FocalLoss(2.0), "ce": "ce"}, ["first", "second"]),
    ],
)
def test_losses_of_equal_names_are_distinguished_in_order(losses, names):
    task = classification()
    found = given_contestants(losses, task, baseline=baseline_contestant(task), taken=["evomal"])
    assert [contestant.name for contestant in found] == names
    assert len({contestant.losses[0].identity for contestant in found}) == len(found)


def test_a_name_that_a_method_has_is_not_taken_from_it(tmp_path):
    save_loss(evomal.ExpressionLoss("abs(sub(f, y))", kind="regression"), tmp_path / "evomal.json")
    (found,) = given_contestants([tmp_path / "evomal.json"], regression(), taken=["evomal"])
    assert found.name == "evomal 2"


def test_files_of_one_name_in_folders_of_one_name_get_numbers(tmp_path):
    files = [tmp_path / top / "run" / "best.json" for top in ("a", "b")]
    for file, tree in zip(files, ("square(sub(f, y))", "abs(sub(f, y))"), strict=True):
        file.parent.mkdir(parents=True)
        save_loss(evomal.ExpressionLoss(tree, kind="regression"), file)
    assert [contestant.name for contestant in given_contestants(files, regression())] == ["run/best", "run/best 2"]


def test_modules_that_look_alike_are_trained_each_by_itself():
    found = compare(
        classification(), losses={"once": Opaque(1.0), "twice": Opaque(2.0)}, seeds=2, rescale=False,
        **{**SHORT, "final_steps": 40},
    )  # fmt: skip
    once, twice = ([score.test for score in found.entry(name).losses[0].scores] for name in ("once", "twice"))
    assert once == [score.test for score in found.entry("ce").losses[0].scores]
    assert once != twice


def test_a_learned_loss_and_a_weighted_one_stand_beside_the_baseline():
    losses = [CrossEntropyLoss(weight=WEIGHT), learned("abs(log(mul(y, f)))"), learned("square(sub(f, y))")]
    found = compare(classification(), losses=losses, seeds=1, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries] == ["ce", "ce (weight=[1, 2, 3])", "learned", "learned 2"]
    assert list(found.verdicts) == ["ce (weight=[1, 2, 3])", "learned", "learned 2"]


def test_a_name_may_have_options():
    contestant = given_contestant("absolute-ce:phi1=1.1,phi0=2", classification())
    (candidate,) = contestant.losses
    assert contestant.name == "absolute-ce:phi1=1.1,phi0=2"
    assert (candidate.loss.phi0, candidate.loss.phi1) == (2.0, 1.1)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("focal:gamma=two", "focal: gamma must be a number but got 'two'"),
        ("focal:delta=2", "focal has no option 'delta'"),
        ("focal:gamma=2,gamma=3", "focal: gamma is given twice"),
        ("sparse-label-smoothing:simplified=yes", "simplified must be one of true, false but got 'yes'"),
        ("huber:delta=2", "the task is classification, but huber is for regression"),
        ("hubert:delta=2", "loss must be a name"),
    ],
)
def test_what_is_no_loss_gets_one_sentence(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        given_contestant(spec, classification())


def test_units_are_of_no_account_where_the_task_standardises(tmp_path):
    task = regression()
    plain = evomal.ExpressionLoss("abs(sub(f, y))", kind="regression")
    loss = plain.in_units(evomal.Units(150.0, 80.0))
    (with_units,), (without,) = given_contestant(loss, task).losses, given_contestant(plain, task).losses
    assert with_units.loss.units is None
    assert with_units.identity == without.identity
    assert tree_of(with_units.loss) == tree_of(without.loss) is not None
    raw = dataclasses.replace(task, units=None)
    (with_units,), (without,) = given_contestant(loss, raw).losses, given_contestant(plain, raw).losses
    assert with_units.loss.units == evomal.Units(150.0, 80.0)
    assert with_units.identity != without.identity
    assert tree_of(with_units.loss) is None


def test_what_a_search_finds_is_used_as_the_task_it_is_used_on_needs_it():
    source, other = regression(), regression(seed=3)
    settings = SearchSettings.preset(
        "paper", population=4, generations=1, meta_steps=1, training_steps=2, filter_steps=2, device="cpu"
    )
    raw = dataclasses.replace(other, units=None)
    for on, units in ((source, None), (other, None), (raw, source.units)):
        ((contestant,),) = searched_contestants(["taylorglo"], source, [(settings, None)], on=on, search_seeds=1)
        assert contestant.losses[0].loss.units == units
