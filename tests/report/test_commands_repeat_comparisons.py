"""The commands of comparisons, as they were recorded; tests/cli/test_report.py also runs them."""

import json
import shlex

import pytest

from evomal.report.commands import repeat_comparisons
from evomal.verdict.comparison import Command, RateCurve, Transfer
from evomal.verdict.folder import recorded_verdicts, write_result
from tests.verdict.results import comparison

WORDS = ["evomal", "compare", "my task.py:make", "--losses", "best.json,huber"]


def texts(folder):
    return [command.text for command in repeat_comparisons(recorded_verdicts(folder), folder)]


def test_a_command_is_given_again_with_another_folder(tmp_path):
    write_result(comparison(words=WORDS), tmp_path)
    write_result(Transfer(comparison(), None, {}, Command(("evomal", "transfer", "--to", "boston"), "/a")), tmp_path)
    first, second = repeat_comparisons(recorded_verdicts(tmp_path), tmp_path)
    assert shlex.split(first.text) == [*WORDS, "--out", f"{tmp_path}-again"]
    assert first.sentence == "run it from the folder /somewhere"
    assert second.text == f"evomal transfer --to boston --out {tmp_path}-again"


def test_comparisons_at_several_rates_have_one_command(tmp_path):
    words = [*WORDS, "--rates", "0.1,0.2"]
    write_result(RateCurve({0.1: comparison(), 0.2: comparison()}, False, Command(tuple(words), "/a")), tmp_path)
    (command,) = texts(tmp_path)
    assert shlex.split(command) == [*words, "--out", f"{tmp_path}-again"]


@pytest.mark.parametrize("words", [[], ["rm", "-rf", "x"], ["evomal"], ["evomal", "search", "x"], ["evomal", "report"]])
def test_other_commands_are_not_given(tmp_path, words):
    write_result(comparison(words=words), tmp_path)
    assert texts(tmp_path) == []


@pytest.mark.parametrize("command", [None, "evomal compare x", [], {"words": ["evomal", "compare", 3], "folder": ""}])
def test_files_without_a_command_have_none(tmp_path, command):
    assert texts(tmp_path) == []
    (tmp_path / "comparison.json").write_text(json.dumps({**comparison().to_dict(), "command": command}))
    assert texts(tmp_path) == []


def test_words_of_a_stranger_stay_words(tmp_path):
    write_result(comparison(words=["evomal", "compare", "$(rm x); rm x\n`rm x`"]), tmp_path)
    (command,) = texts(tmp_path)
    assert shlex.split(command)[2] == "$(rm x); rm x\n`rm x`"
