"""On a terminal that knows ASCII only, symbols are spelled, and nothing raises."""

import io
import os
import subprocess
import sys
import warnings

import pytest

import evomal
from evomal.cli import streams


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.5 ± 0.1 %", "0.5 +/- 0.1 %"),
        ("a…", "a..."),
        ("3×28×28", "3x28x28"),
        ("φ·θ² ≤ Δ", "phi*theta2 <= delta"),
        ("╭─╮│┏━┓", "+-+|+-+"),
        ("naïve 数", "naive ?"),
        ("half \udcff", "half ?"),
    ],
)
def test_symbols_are_spelled(tmp_path, monkeypatch, text, shown):
    with open(tmp_path / "terminal", "w", encoding="ascii") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        streams.replace_unencodable()
        print(text, flush=True)  # noqa: T201
    assert (tmp_path / "terminal").read_bytes().decode("ascii") == f"{shown}\n"


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", "± - ?"), ("utf-8", "± — ?")])
def test_an_encoding_keeps_what_it_has(monkeypatch, encoding, shown):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    streams.replace_unencodable()
    print("± — \udcff", end="", flush=True)  # noqa: T201
    assert terminal.buffer.getvalue().decode(encoding) == shown


def test_a_stream_of_another_program_is_left_alone(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    streams.replace_unencodable()
    assert sys.stdout is terminal


@pytest.mark.parametrize("arguments", [["tasks"], ["--help"]])
def test_a_command_on_an_ascii_terminal(arguments):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "LANG": "C"}
    command = [sys.executable, "-m", "evomal", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"?" not in done.stdout


def test_a_warning_of_evomal_is_one_sentence_and_others_are_as_usual(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    streams.show_warnings_as_sentences()
    own = os.path.join(os.path.dirname(evomal.__file__), "compiled.py")
    assert warnings.formatwarning("slow\n", RuntimeWarning, own, 3) == "evomal: warning: slow\\n\n"
    assert warnings.formatwarning("odd", UserWarning, "mine.py", 3, "x = 1").startswith("mine.py:3: UserWarning: odd")
