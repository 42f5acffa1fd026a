"""The command that repeats a search, from what is recorded."""

import itertools
import shlex
from pathlib import Path

import pytest

from evomal.report.commands import again, as_texts, repeat_command
from evomal.runs import RunStore
from evomal.runs.reading import chosen_runs
from evomal.settings import SearchSettings
from tests.figures.records import record, row
from tests.figures.records import settings as recorded

NO_HARDSHIPS = {"label_noise": 0.0, "asymmetric": False, "outliers": 0.0, "imbalance": 1.0, "fraction": 1.0}
SOURCE = {"tasks": ["diabetes"], "model": "mlp:hidden=64", "hardships": NO_HARDSHIPS}
BUDGETS = ("max_time", "max_evaluations", "patience", "generations")


def command_of(folder, settings=None, source=SOURCE, rows=(), **described):
    dumped = (settings or SearchSettings.preset("quick")).model_dump(mode="json")
    budgets = {name: dumped.pop(name) for name in BUDGETS}
    parts = {"settings": dumped, "budgets": budgets, "source": source}
    (run,) = chosen_runs([record(folder / "mine", list(rows), **parts, **described)]).runs
    return repeat_command(run)


def test_a_preset_as_it_is_needs_no_settings(tmp_path):
    command = command_of(tmp_path, SearchSettings.preset("quick", threads=1, device="cpu"), seed=3)
    assert command.text == (
        "evomal search diabetes --model mlp:hidden=64 --seed 3 --set device=cpu --set threads=1 "
        f"--out {tmp_path / 'mine-again'}"
    )
    assert (command.sentence, command.preset, command.changes) == ("", "quick", {"device": "cpu", "threads": "1"})


def test_what_differs_from_the_nearest_preset_is_set(tmp_path):
    settings = SearchSettings.preset(
        "paper", population=7, meta_lr=1e-05, initial_height=(1, 3), filters=("dead",), deterministic=True,
        seed_with=("ce", "a b.json"), threads=1, device="cpu",
    )  # fmt: skip
    command = command_of(tmp_path, settings, method="gp-lfl")
    words = shlex.split(command.text)
    assert words[:9] == [
        "evomal", "search", "diabetes", "--model", "mlp:hidden=64", "--method", "gp-lfl", "--seed", "0",
    ]  # fmt: skip
    assert words[9:11] == ["--preset", "paper"]
    changes = [word for flag, word in itertools.pairwise(words) if flag == "--set"]
    assert changes == [
        "population=7", "initial_height=1,3", "meta_lr=1e-05", "filters=dead", "seed_with=ce,a b.json", "device=cpu",
        "threads=1", "deterministic=true",
    ]  # fmt: skip
    assert SearchSettings.preset("paper").with_texts(changes) == settings


def test_every_setting_comes_back_from_its_text():
    settings = SearchSettings(filters=(), lr=0.1, nesterov=False, max_time="90s", metric="mae", chunk=3)
    texts = [f"{key}={value}" for key, value in as_texts(settings).items()]
    assert SearchSettings.preset("quick").with_texts(texts) == settings


def test_hardships_are_options(tmp_path):
    hardships = {"label_noise": 0.2, "asymmetric": True, "outliers": 0.0, "imbalance": 0.5, "fraction": 1.0}
    source = {"tasks": ["/a b/c.py:d", "mnist"], "model": None, "hardships": hardships}
    words = shlex.split(command_of(tmp_path, source=source).text)
    assert words[2:10] == [
        "/a b/c.py:d",
        "mnist",
        "--label-noise",
        "0.2",
        "--asymmetric",
        "--imbalance",
        "0.5",
        "--seed",
    ]


def test_a_model_that_was_not_named_is_named_as_the_default_may_change(tmp_path):
    source = {"tasks": ["diabetes"], "model": None, "hardships": NO_HARDSHIPS}
    command = command_of(tmp_path, source=source)  # of a run with the model "linear"
    assert command.text.startswith("evomal search diabetes --model linear --seed 0 ")


def test_what_the_machine_decided_is_said(tmp_path):
    sentence = command_of(tmp_path).sentence
    assert sentence == "on a machine with other cores or devices, add --set threads=1 --device cpu"


def test_more_generations_than_planned_were_asked_for_on_resuming(tmp_path):
    rows = [row(number, 0, 0.5) for number in range(12)]
    assert command_of(tmp_path, rows=rows).changes == {"generations": "12"}


def test_a_search_from_python_on_a_built_in_task_can_be_typed_and_another_cannot(tmp_path):
    builtin = {"name": "boston", "dataset": "boston", "model": "mlp", "seed": 0, "hardships": NO_HARDSHIPS}
    (run,) = chosen_runs([_begun_from_python(tmp_path / "a", builtin)]).runs
    assert repeat_command(run).text.startswith("evomal search boston --model mlp --seed 0 ")
    for number, changed in enumerate(({"dataset": "own"}, {"seed": 4})):
        (run,) = chosen_runs([_begun_from_python(tmp_path / f"b{number}", {**builtin, **changed})]).runs
        command = repeat_command(run)
        assert command.text is None
        assert command.sentence == ("begun from Python: evomal.search with the same task and these settings repeats it")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"tasks": ["--config=/etc/passwd"], "model": None, "hardships": {}}, "its tasks have no proper names"),
        ({"tasks": [], "model": None, "hardships": {}}, "its tasks have no proper names"),
        ({"tasks": ["a"], "hardships": {}}, "'model'"),
        ({"tasks": ["a"], "model": None, "hardships": {"fraction": 7.0}}, "fraction must be a share above 0"),
        ("text", "string indices must be integers"),
    ],
)
def test_a_record_that_does_not_say_how_it_was_begun_has_no_command(tmp_path, source, reason):
    command = command_of(tmp_path, source=source)
    assert command.text is None
    assert command.sentence.startswith(f"this record does not say how it was begun: {reason}")


def test_a_foreign_record_has_no_command(tmp_path):
    (run,) = chosen_runs([record(tmp_path / "a", [])]).runs
    assert repeat_command(run).sentence == "this record does not have the settings of a search"
    assert command_of(tmp_path, method="magic").text is None


def test_a_stranger_s_names_stay_words_of_their_own(tmp_path):
    source = {**SOURCE, "tasks": ["a; rm -rf ~ $(x) `y` 'z'"]}
    words = shlex.split(command_of(tmp_path, source=source).text)
    assert words[2] == "a; rm -rf ~ $(x) `y` 'z'"


def test_again_lies_beside(tmp_path):
    assert [again(Path(name)) for name in ("runs/a", "a", ".", "..")] == [
        "runs/a-again",
        "a-again",
        "again",
        "../again",
    ]


def _begun_from_python(folder, task):
    dumped = SearchSettings.preset("quick").model_dump(mode="json")
    content = {**recorded(), "task": {"0": {**task, "metric": "mse"}}, "settings": dumped, "source": None}
    with RunStore.create(folder, content) as store:
        store.finish("all generations are done")
    return folder
