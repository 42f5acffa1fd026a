"""The command of a comparison, from the files it left; tests/test_cli_report.py also runs it."""

import json
import shlex

import pytest

from evomal.report.commands import repeat_comparisons

WORDS = ["evomal", "compare", "my task.py:make", "--losses", "best.json,huber"]


def test_what_was_typed_is_typed_again_into_another_folder(tmp_path):
    (tmp_path / "comparison.json").write_text(json.dumps({"command": WORDS, "rows": []}))
    (tmp_path / "transfer.json").write_text(json.dumps({"command": ["evomal", "transfer", "--to", "boston"]}))
    first, second = repeat_comparisons(tmp_path)
    assert shlex.split(first) == [*WORDS, "--out", f"{tmp_path}-again"]
    assert second == f"evomal transfer --to boston --out {tmp_path}-again"


def test_comparisons_at_several_rates_were_typed_once(tmp_path):
    content = {f"lr {rate}": {"command": [*WORDS, "--rates", "0.1,0.2"]} for rate in (0.1, 0.2)}
    (tmp_path / "learning-rates.json").write_text(json.dumps(content))
    (command,) = repeat_comparisons(tmp_path)
    assert shlex.split(command) == [*WORDS, "--rates", "0.1,0.2", "--out", f"{tmp_path}-again"]


@pytest.mark.parametrize(
    "content",
    [
        {}, {"rows": []}, {"lr 1": {"rows": []}}, [], None, 3, {"command": "evomal compare x"},
        {"command": ["rm", "-rf", "x"]}, {"command": ["evomal", "compare", 3]}, {"command": ["evomal", "search", "x"]},
        {"command": None}, {"command": []}, {"lr 1": []},
    ],
)  # fmt: skip
def test_files_that_do_not_say_have_no_command(tmp_path, content):
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    assert repeat_comparisons(tmp_path) == ()


def test_words_of_a_stranger_stay_words(tmp_path):
    (tmp_path / "comparison.json").write_text(json.dumps({"command": ["evomal", "compare", "$(rm x); rm x\n`rm x`"]}))
    (command,) = repeat_comparisons(tmp_path)
    assert shlex.split(command)[2] == "$(rm x); rm x\n`rm x`"


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_files_that_are_missing_or_broken_have_no_command(tmp_path, content):
    assert repeat_comparisons(tmp_path) == ()
    (tmp_path / "comparison.json").write_bytes(content)
    assert repeat_comparisons(tmp_path) == ()
