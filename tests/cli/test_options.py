"""Lists as people type them."""

import dataclasses

import pytest
import typer

from evomal.cli.app import app
from evomal.cli.options import SettingsOptions, listed, settings_help, split_losses, split_rates
from evomal.errors import InputError
from evomal.methods.baseline import strong_rivals
from evomal.settings import SearchSettings
from evomal.tasks import Hardships
from tests.engine.populations import classification, regression


def test_options_stay_with_their_loss():
    names = "ce, focal-sparse-label-smoothing:gamma=2,smoothing=0.1,absolute-ce:phi1=1.1,mine.json"
    assert split_losses([names], classification()) == [
        "ce", "focal-sparse-label-smoothing:gamma=2,smoothing=0.1", "absolute-ce:phi1=1.1", "mine.json"
    ]  # fmt: skip


def test_a_file_with_an_equals_sign_in_its_name_is_a_file():
    assert split_losses(["lr=1.json,focal,lr=2.json"], classification()) == ["lr=1.json", "focal", "lr=2.json"]


def test_strong_stands_for_the_rivals_that_fit_the_task():
    assert split_losses(["mine.json,strong"], regression()) == ["mine.json", *strong_rivals(regression())[1:]]
    assert split_losses([], regression()) == split_losses(None, regression()) == []
    with pytest.raises(InputError, match=r"^--losses must name at least one loss but got '', ','$"):
        split_losses(["", ","], regression())


def test_an_option_that_is_repeated_has_the_entries_of_all():
    assert listed(["a, b", "c"]) == ["a", "b", "c"]
    assert listed([]) is listed(None) is None
    given = ["focal:gamma=2", "lr=1.json,ce"]  # options do not reach into the next list
    assert split_losses(given, classification()) == ["focal:gamma=2", "lr=1.json", "ce"]


def test_every_option_that_takes_a_list_may_be_repeated():
    commands = dict(typer.main.get_command(app).commands)
    commands |= {f"analyse {name}": command for name, command in commands.pop("analyse").commands.items()}
    options = {
        (name, option.opts[0]): option
        for name, command in commands.items()
        for option in command.params
        if "comma-separated" in (getattr(option, "help", None) or "")
    }
    expected = {
        ("campaign", "--only"), ("campaign", "--methods"), ("compare", "--methods"), ("compare", "--losses"),
        ("compare", "--rates"), ("search", "--seed-with"), ("transfer", "--loss"), ("transfer", "--methods"),
        ("analyse smoothing-cost", "--classes"), ("analyse learning-rate", "--rates"), ("analyse training", "--losses"),
    }  # fmt: skip
    assert expected <= {*options}
    assert [place for place, option in options.items() if not option.multiple] == []


def test_rates_are_numbers():
    assert split_rates(["0.1, 1e-3", "2"]) == [0.1, 0.001, 2.0]
    with pytest.raises(InputError, match=r"^rates must be comma-separated numbers but got '0.1,fast'$"):
        split_rates(["0.1,fast"])


def test_the_help_describes_every_setting_with_defaults_and_choices():
    _, *paragraphs = settings_help().split("\n\n")
    assert [paragraph.split()[0].rstrip(":") for paragraph in paragraphs] == list(SearchSettings.model_fields)
    assert (
        "generations (8; thorough: 20; paper: 50): Number of generations. May be changed when a run is resumed."
        in paragraphs
    )
    assert "precision (float32): Precision of the trainings. One of float32, tf32, bfloat16." in paragraphs
    assert "lr: Learning rate of the trainings; by default the task's." in paragraphs


@pytest.mark.parametrize("name", ["search", "headroom", "train", "compare"])
def test_every_hardship_is_an_option_that_changes_nothing_by_default(name):
    options = {option.name: option for option in typer.main.get_command(app).commands[name].params}
    for hardship in dataclasses.fields(Hardships):
        option = options[hardship.name]
        assert option.opts == [f"--{hardship.name.replace('_', '-')}"]
        assert (option.default, type(option.default)) == (hardship.default, type(hardship.default))


def test_a_path_with_commas_is_one_loss(tmp_path):
    file = tmp_path / "lr=1,wd=0" / "best.json"
    file.parent.mkdir()
    assert len(split_losses([str(file)], regression())) == 2
    file.touch()
    assert split_losses([str(file)], regression()) == [str(file)]


@pytest.mark.parametrize(("change", "texts"), [("device=cuda", ()), ("seed_with = huber", ("seed_with=mae",))])
def test_a_setting_is_not_given_twice(change, texts):
    options = SettingsOptions(preset=None, config=None, changes=[change], device="cpu")
    name = change.partition("=")[0].strip()
    with pytest.raises(InputError, match=f"^{name} is given by --set and by --{name.replace('_', '-')}: give it once$"):
        options.settings(*texts)
