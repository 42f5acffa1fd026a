"""The commands of searches, as they were recorded, and the settings beside them."""

import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from evomal.report.commands import beside, compare_command, repeat_command
from evomal.runs.reading import read_runs
from evomal.settings import SearchSettings
from tests.figures.records import record, row

NO_HARDSHIPS = {"label_noise": 0.0, "asymmetric": False, "outliers": 0.0, "imbalance": 1.0, "fraction": 1.0}
WORDS = ["evomal", "search", "diabetes", "--seed", "3"]
SOURCE = {
    "tasks": ["diabetes"], "model": "mlp:hidden=64", "hardships": NO_HARDSHIPS,
    "command": {"words": WORDS, "folder": "/somewhere"},
}  # fmt: skip
BUDGETS = ("max_time", "max_evaluations", "patience", "generations")


def run_of(folder, settings=None, source=SOURCE, rows=(), **described):
    dumped = (settings or SearchSettings.preset("quick")).model_dump(mode="json")
    budgets = {name: dumped.pop(name) for name in BUDGETS}
    parts = {"settings": dumped, "budgets": budgets, "source": source}
    (run,) = read_runs([record(folder / "mine", list(rows), **parts, **described)]).runs
    return run


def command_of(folder, *arguments, **described):
    return repeat_command(run_of(folder, *arguments, **described))


def test_a_command_is_given_again_with_another_folder(tmp_path):
    command = command_of(tmp_path, SearchSettings.preset("quick", threads=1, device="cpu"))
    assert shlex.split(command.text) == [*WORDS, "--out", str(tmp_path / "mine-again")]
    assert command.sentence == "run it from the folder /somewhere"
    assert (command.preset, command.changes) == ("quick", {"device": "cpu", "threads": "1"})


def test_settings_are_compared_with_the_nearest_preset(tmp_path):
    settings = SearchSettings.preset(
        "paper", population=7, meta_lr=1e-05, initial_height=(1, 3), filters=("dead",), seed_with=("ce", "a b.json"),
    )  # fmt: skip
    command = command_of(tmp_path, settings)
    assert command.preset == "paper"
    assert command.changes == {
        "population": "7", "initial_height": "1,3", "meta_lr": "1e-05", "filters": "dead", "seed_with": "ce,a b.json",
    }  # fmt: skip
    assert SearchSettings.preset("paper").with_texts([f"{k}={v}" for k, v in command.changes.items()]) == settings


@pytest.mark.parametrize(
    ("recipe", "recorded", "changes"),
    [
        ({}, "sgd", {}),
        ({}, "adam", {"optimizer": "adam"}),
        ({"optimizer": "adamw"}, "adamw", {}),
        ({"optimizer": "adamw"}, "sgd", {"optimizer": "sgd"}),
        ({"optimizer": {"function": "mine", "makes": "AdamW", "digest": "0"}}, None, {}),
    ],
)
def test_the_optimizer_of_the_task_is_no_change(tmp_path, recipe, recorded, changes):
    run = run_of(tmp_path, SearchSettings.preset("quick", optimizer=recorded))
    task = {**run.settings["task"]["0"], "recipe": recipe}
    assert repeat_command(replace(run, settings={**run.settings, "task": {"0": task}})).changes == changes


def test_what_the_machine_decided_is_said(tmp_path):
    added = "on a machine with other cores or devices, add --set threads=1 --device cpu"
    assert command_of(tmp_path).sentence == f"run it from the folder /somewhere; {added}"


def test_more_generations_than_planned_were_asked_for_on_resuming(tmp_path):
    command = command_of(tmp_path, rows=[row(number, 0, 0.5) for number in range(12)])
    assert command.changes == {"generations": "12"}
    assert "--set generations=12 --out" in command.text


def test_another_number_of_generations_was_recorded_on_resuming(tmp_path):
    changed = SearchSettings.preset("quick", generations=5)
    command = command_of(tmp_path, changed, first_budgets={"generations": 8})
    assert command.changes == {"generations": "5"}
    assert "--set generations=5 --out" in command.text


@pytest.mark.parametrize(
    "source",
    [
        None, "text", {"tasks": ["diabetes"]}, {"command": None}, {"command": {"words": "evomal search"}},
        {"command": {"words": ["evomal", "search", 3]}}, {"command": {"words": ["rm", "-rf", "x"]}},
        {"command": {"words": ["evomal", "compare", "x"]}}, {"command": {"words": []}},
    ],
)  # fmt: skip
def test_a_record_without_a_command_has_none(tmp_path, source):
    command = command_of(tmp_path, source=source)
    assert command.text is None
    assert command.sentence.startswith("the record has no command: ")


def test_a_foreign_record_has_no_command(tmp_path):
    (run,) = read_runs([record(tmp_path / "a", [])]).runs
    assert repeat_command(run).sentence == "this record does not have the settings of a search"


def test_a_stranger_s_words_stay_words_of_their_own(tmp_path):
    words = [*WORDS, "a; rm -rf ~ $(x) `y` 'z'"]
    command = command_of(tmp_path, source={**SOURCE, "command": {"words": words, "folder": "/a"}})
    assert shlex.split(command.text)[:-2] == words


def test_the_best_loss_is_compared_on_its_task(tmp_path):
    hardships = {**NO_HARDSHIPS, "label_noise": 0.2, "asymmetric": True}
    words = shlex.split(compare_command(run_of(tmp_path, source={**SOURCE, "hardships": hardships})))
    task = ["diabetes", "--model", "mlp:hidden=64", "--label-noise", "0.2", "--asymmetric"]
    assert words == [
        "evomal", "compare", *task,
        "--losses", str(tmp_path / "mine" / "best.json"), "--losses", "strong", "--tune-lr", "5",
        "--out", str(tmp_path / "mine"),
    ]  # fmt: skip


def test_the_best_loss_is_judged_and_trained_as_in_its_search(tmp_path):
    settings = SearchSettings.preset(
        "quick", metric="r2", lr=0.5, optimizer="adam", batch_size=7, precision="bfloat16", final_steps=None,
        population=9,
    )  # fmt: skip
    words = shlex.split(compare_command(run_of(tmp_path, settings)))
    changes = [word for before, word in pairwise(words) if before == "--set"]
    assert changes == [
        "metric=r2",
        "optimizer=adam",
        "lr=0.5",
        "batch_size=7",
        "final_steps=none",
        "precision=bfloat16",
    ]
    assert SearchSettings.preset("quick").with_texts(changes) == settings.with_changes(
        population=SearchSettings.preset("quick").population
    )


def test_a_model_that_was_not_named_is_named_as_the_default_may_change(tmp_path):
    command = compare_command(run_of(tmp_path, source={**SOURCE, "model": None}))  # of a run with the model "linear"
    assert command.startswith("evomal compare diabetes --model linear --losses ")


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": ["--config=/etc/passwd"]}, {"tasks": []}, {"tasks": ["a", "b"]}, {"tasks": [3]},
        {"hardships": {"fraction": 7.0}},
    ],
)  # fmt: skip
def test_what_compare_cannot_do_has_no_command(tmp_path, changes):
    assert compare_command(run_of(tmp_path, source={**SOURCE, **changes})) is None
    assert compare_command(run_of(tmp_path / "other", source=None)) is None


def test_a_folder_beside_has_another_name():
    folders = [beside(Path(name)) for name in ("runs/a", "a", ".", "..")]
    assert folders == ["runs/a-again", "a-again", "again", "../again"]
