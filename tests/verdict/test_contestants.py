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


class Scaled(torch.nn.Module):
    """Cross-entropy of outputs times a number that no attribute shows."""

    def __init__(self, factor):
        super().__init__()
        self._hidden = {"factor": factor}

    def forward(self, output, target):
        return torch.nn.functional.cross_entropy(output * self._hidden["factor"], target)


def results_of(losses, folder):
    found = compare(classification(), losses=losses, seeds=2, rescale=False, folder=folder, **SHORT)
    return {name: found.entry(name).costs(higher_is_better=False)[0] for name in losses}


def test_a_folder_has_no_results_of_another_loss_that_looks_alike(tmp_path):
    first = results_of({"own": Scaled(1.0)}, tmp_path / "one")
    assert results_of({"own": Scaled(1.0)}, tmp_path / "one") == first
    other = results_of({"own": Scaled(-1.0)}, tmp_path / "one")
    assert other == results_of({"own": Scaled(-1.0)}, tmp_path / "other") != first
    both = results_of({"plus": Scaled(1.0), "minus": Scaled(-1.0)}, tmp_path / "both")
    assert both == {"plus": first["own"], "minus": other["own"]}
    assert results_of({"minus": Scaled(-1.0), "plus": Scaled(1.0)}, tmp_path / "both") == both


class Annealed(torch.nn.Module):
    """A loss that counts its calls, and is nothing after some of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.own = torch.nn.Parameter(torch.ones(()))

    def forward(self, output, target):
        self.calls += 1
        return torch.nn.functional.cross_entropy(output, target) * (self.calls < 4) * self.own


@pytest.mark.filterwarnings("ignore:the parameters of the loss Annealed")
@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_the_state_of_a_loss_is_that_of_its_training(tmp_path, mode):
    loss, task = Annealed(), classification()
    alone = [evomal.train(task, loss, seed=seed, steps=5, device="cpu").test for seed in (1000, 1001)]
    assert alone == [evomal.train(task, loss, seed=seed, steps=5, device="cpu").test for seed in (1000, 1001)]
    options = {"seeds": 2, "rescale": False, "population_mode": mode, **SHORT}
    logs = set()
    for _ in range(2):  # the second one has its results from the folder
        found = compare(task, losses={"own": loss}, folder=tmp_path, **options)
        assert found.entry("own").costs(higher_is_better=False)[0] == pytest.approx(alone)
        logs.add((tmp_path / "trainings.jsonl").read_bytes())
    assert len(logs) == 1
    assert (loss.calls, loss.own.grad) == (0, None)


def test_the_parameters_of_a_loss_are_said_to_stay_as_they_are():
    with pytest.warns(UserWarning, match="the parameters of the loss Annealed stay as they are: only the model's are"):
        evomal.train(classification(), Annealed(), steps=2, device="cpu")


def test_a_loss_that_cannot_be_copied_is_refused():
    class Open(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.ones(2, requires_grad=True) * 2

    with pytest.raises(InputError, match="the loss Open is copied for every training, as it may keep a state, but"):
        evomal.train(classification(), Open(), steps=2, device="cpu")
