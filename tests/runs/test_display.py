"""A search shown to a person who calls it from Python."""

import sys

import pytest

from evomal.runs.display import ProgressDisplay
from evomal.runs.run_loop import search
from tests.engine.populations import regression
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 4, "generations": 2, "meta_steps": 2, "training_steps": 5, "filter_steps": 10, "device": "cpu",
    "finalists": 2, "final_seeds": 1, "seed_with": ("mse",),
}  # fmt: skip


def test_progress_is_lines_where_there_is_no_terminal(capsys):
    search(regression(), progress=True, **SHORT)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "rivals", "generation 1 of 2", "generation 2 of 2", "final",
    ]  # fmt: skip


def test_progress_is_a_bar_with_the_time_left_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    search(regression(), progress=True, **SHORT)
    _, err = capsys.readouterr()
    assert " left" in err
    assert "2 of 2 generations" in err
    assert "rivals" in err


def test_without_progress_nothing_is_shown(capsys):
    search(regression(), **SHORT)
    assert capsys.readouterr() == ("", "")


def test_rivals_outside_of_a_search_are_shown_as_trainings(capsys):
    with ProgressDisplay() as listener:
        listener.on_phase("rivals", 10)
        listener.on_steps("evaluate", 10)
        listener.on_rivals({"mse": 0.5})
    assert capsys.readouterr() == ("", "training rivals\n")


def test_a_search_that_fails_leaves_no_display_behind(capsys):
    def stop(generation):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(regression(), progress=True, callback=stop, **SHORT)
    with ProgressDisplay() as listener:
        listener.say("hello")
    assert capsys.readouterr().err.endswith("evomal: hello\n")
