"""Losses that take part: by name, with options, by file, and what they are called."""

import dataclasses

import pytest

import evomal
from evomal.errors import InputError
from evomal.losses import save_loss
from evomal.settings import SearchSettings
from evomal.verdict.arena import Job, tree_of
from evomal.verdict.comparison import compare
from evomal.verdict.contestants import all_given, given, searched
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


def test_files_of_one_name_are_told_apart_by_their_folders(files, tmp_path):
    other = tmp_path / "other.json"
    save_loss(evomal.ExpressionLoss("abs(sub(f, y))", kind="regression"), other)
    names = [contestant.name for contestant in all_given([*files, other, "mse"], regression())]
    assert names == ["first/best", "second/best", "other", "mse"]


def test_a_comparison_takes_the_results_of_several_runs(files):
    found = compare(regression(), losses=files, seeds=1, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries] == ["mse", "first/best", "second/best"]
    sentence = r"^contestants must have different names but 'first/best' stands twice$"
    with pytest.raises(InputError, match=sentence):
        compare(regression(), losses=[files[0], files[0]], **SHORT)


def test_a_name_may_have_options():
    contestant = given("absolute-ce:phi1=1.1,phi0=2", classification())
    (candidate,) = contestant.candidates
    assert contestant.name == "absolute-ce:phi1=1.1,phi0=2"
    assert (candidate.loss.phi0, candidate.loss.phi1) == (2.0, 1.1)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("focal:gamma=two", "focal:gamma=two: gamma must be a number but got 'two'"),
        ("focal:delta=2", "focal has no option 'delta'"),
        ("huber:delta=2", "the task is classification, but huber is for regression"),
        ("hubert:delta=2", "loss must be a name"),
    ],
)
def test_what_is_no_loss_gets_one_sentence(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        given(spec, classification())


def test_units_are_of_no_account_where_the_task_standardises(tmp_path):
    task = regression()
    plain = evomal.ExpressionLoss("abs(sub(f, y))", kind="regression")
    loss = plain.in_units(evomal.Units(150.0, 80.0))
    (with_units,), (without,) = given(loss, task).candidates, given(plain, task).candidates
    assert with_units.loss.units is None
    assert with_units.identity == without.identity
    assert tree_of(Job(with_units, 0.1)) == tree_of(Job(without, 0.1)) is not None
    raw = dataclasses.replace(task, units=None)
    (with_units,), (without,) = given(loss, raw).candidates, given(plain, raw).candidates
    assert with_units.loss.units == evomal.Units(150.0, 80.0)
    assert with_units.identity != without.identity
    assert tree_of(Job(with_units, 0.1)) is None


def test_what_a_search_finds_is_used_as_the_task_it_is_used_on_needs_it():
    source, other = regression(), regression(seed=3)
    settings = SearchSettings.preset(
        "quick", population=4, generations=1, meta_steps=1, training_steps=2, filter_steps=2, device="cpu"
    )
    raw = dataclasses.replace(other, units=None)
    for on, units in ((source, None), (other, None), (raw, source.units)):
        contestant = searched(source, "taylorglo", settings, on=on, seeds=[0], folder=None)
        assert contestant.candidates[0].loss.units == units
