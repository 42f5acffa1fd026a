"""Commands put together again from what was understood of them."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from evomal.cli.options import typed_words


def understood(*words):
    """What is put together of words that follow the command's name."""
    found = []
    app = typer.Typer()

    @app.callback()
    def main():
        pass

    @app.command("do")
    def do(
        context: typer.Context,
        task: str,
        losses: str = "",
        number: int = 3,
        several: Annotated[list[str] | None, typer.Option("--set")] = None,
        fine: bool = True,
        loud: Annotated[bool, typer.Option("--loud")] = False,
        config: Path | None = None,
        out: str | None = None,
    ):
        found.extend(typed_words(context, without=("out",)))

    result = CliRunner().invoke(app, ["do", *words])
    assert result.exit_code == 0, result.output
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["a b"],
        ["x", "--number", "4"],
        ["x", "--number", "3"],  # the default, but typed
        ["x", "--set", "a=1", "--set", "b=2"],
        ["x", "--no-fine", "--loud"],
        ["x", "--fine"],
    ],
)
def test_what_was_typed_is_given_again(words):
    assert understood(*words) == ["evomal", "do", *words]


def test_files_have_their_whole_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.json").touch()
    (tmp_path / "mine.py").touch()
    assert understood("x", "--losses", "a b.json, huber,c.json")[4] == f"{tmp_path}/a b.json,huber,c.json"
    assert understood("mine.py:make")[2] == f"{tmp_path}/mine.py:make"
    assert understood("x", "--losses", "absolute-ce:phi1=1.1,phi0=2")[4] == "absolute-ce:phi1=1.1,phi0=2"
    assert understood("x", "--config", "mine.py")[3:] == ["--config", f"{tmp_path}/mine.py"]


def test_names_stay_names_where_files_are_called_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("huber", "diabetes", "x=1"):
        (tmp_path / name).touch()
    words = ["diabetes", "--losses", "huber,mae", "--set", "x=1"]
    assert understood(*words) == ["evomal", "do", *words]


def test_order_is_the_command_s_and_some_are_left_out():
    assert understood("--out", "here", "--loud", "x", "--number=5") == ["evomal", "do", "x", "--number", "5", "--loud"]
