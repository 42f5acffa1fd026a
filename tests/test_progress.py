"""Bars over several stages: on a terminal one line that is kept up to date, elsewhere a line per stage."""

import io
import re

import pytest
from rich.console import Console

from evomal.progress import StageBar


@pytest.fixture(autouse=True)
def _an_ordinary_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def terminal(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=25, color_system=None)


def shown(console):
    """The last state of the bar's line."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", console.file.getvalue())
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()][-1]


def test_stages_share_one_bar_with_the_time_left():
    console = terminal()
    bar = StageBar(console)
    bar.expect(200)
    bar.announce("training with 3 losses, 5 seeds each")
    bar.advance(50)
    bar._progress.refresh()
    line = shown(console)
    assert line.startswith("training with 3 losses, 5 seeds each")
    assert " 25%" in line
    assert line.rstrip().endswith("left")
    assert len(line) <= 80
    bar.expect(300)  # more was found to be done
    bar.advance(50)
    bar._progress.refresh()
    assert " 20%" in shown(console)
    bar.close()
    assert bar._progress is None


def test_a_long_stage_is_cut_to_the_terminal():
    console = terminal(60)
    bar = StageBar(console)
    bar.expect(10)
    bar.announce("training with 3 losses, 5 seeds each, and much more to say than fits into a line of a terminal")
    bar._progress.refresh()
    line = shown(console)
    bar.close()
    assert "…" in line
    assert len(line) <= 60


def test_without_a_terminal_there_is_a_line_per_stage():
    console = Console(file=io.StringIO(), width=30)
    bar = StageBar(console)
    bar.announce("searching with evomal, seed 0 (search 1 of 2) [red]")
    bar.expect(100)
    bar.advance(40)
    bar.announce("training with 3 losses, 5 seeds each")
    bar.close()
    assert console.file.getvalue().splitlines() == [
        "searching with evomal, seed 0 (search 1 of 2) [red]",
        "training with 3 losses, 5 seeds each",
    ]


def test_a_stage_acts_on_no_terminal_and_is_no_markup():
    out = io.StringIO()
    bar = StageBar(Console(file=out))
    bar.announce("training [bold]a[/bold]\x1b[2J\nb")
    bar.say("lost \x07[red]")
    assert out.getvalue() == "training [bold]a[/bold]\\x1b[2J\\nb\nlost \\x07[red]\n"
