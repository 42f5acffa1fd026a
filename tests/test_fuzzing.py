"""The fuzzer sees faults of every kind, and a short run of it finds none; `make fuzz` runs it for minutes."""

import contextlib
import inspect
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
import typer
import typer.main

import evomal
from evomal import cli
from evomal.errors import EvomalError, InputError
from tests.fuzzing import arguments, campaign, command_lines, json_edits, oracle, values
from tests.fuzzing.campaign import run_case
from tests.fuzzing.oracle import Box, Command, Function, Watch, judge
from tests.processes import finished

ROOT = Path(__file__).parents[1]
WATCH = Watch()


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "box").build()


def kinds(call, box):
    return {fault.kind: fault for fault in judge(call, box, WATCH)}


def hang():
    while True:
        time.sleep(0.01)


def write_outside():
    Path("../../../../outside/victim.txt").write_text("changed")


def open_without_following():
    with contextlib.suppress(OSError):
        os.open("link", os.O_WRONLY | os.O_NOFOLLOW)


def run_text():
    exec(compile("forged = 1", "<forged>", "exec"))


def refuse(sentence):
    error = InputError()
    error.args = (sentence,)  # as it would be if the class did not see to it
    raise error


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda: 1 / 0, "traceback"),
        (lambda: sys.exit(1), "traceback"),
        (lambda: refuse("two\nlines"), "sentence"),
        (lambda: refuse(""), "sentence"),
        (lambda: refuse("x" * 100_000), "sentence"),
        (lambda: refuse("\x1b[2J"), "print"),
        (hang, "hang"),
        (write_outside, "write"),
        (lambda: os.mkdir("../../../../forged"), "write"),
        (run_text, "code"),
        (lambda: subprocess.run(["true"], check=True), "code"),
    ],
)
def test_a_fault_of_a_function_is_seen(box, monkeypatch, function, kind):
    monkeypatch.setattr(oracle, "LIMIT", 0.5)
    assert kind in kinds(Function(function, "planted"), box)


def write_page(name, text):
    Path(name).write_text(text)


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (lambda: 1 / 0, "traceback"),
        (lambda: typer.echo("\x1b[2J"), "print"),
        (lambda: typer.echo(f"a\n{values.FORGED_LINE}"), "print"),
        (lambda: sys.stdout.write("×"), "traceback"),  # the terminal of these cases is ASCII
        (lambda: sys.exit(3), "exit code"),
        (lambda: sys.exit(1), "sentence"),
        (lambda: typer.echo("nan"), "result"),
        (lambda: warnings.warn("planted", stacklevel=1), "warning"),
        (lambda: write_page("report.html", f"{values.FORGED_ELEMENT}>"), "markup"),
        (lambda: write_page("comparison.md", f"[x]({values.FORGED_LINK})"), "markup"),
        (lambda: write_page(values.WAS_RUN, ""), "code"),
    ],
)
def test_a_fault_of_a_command_is_seen(box, monkeypatch, behaviour, kind):
    monkeypatch.setattr(oracle, "main", behaviour)
    assert kind in kinds(Command(("planted", "--json"), encoding="ascii"), box)


def test_what_is_right_is_no_fault(box):
    assert kinds(Command(("methods", "--json")), box) == {}
    assert kinds(Command(("runs", "missing")), box) == {}
    assert kinds(Function(lambda: refuse("a sentence"), "planted"), box) == {}
    Path(box.here / "link").symlink_to(box.outside / "victim.txt")
    assert kinds(Function(open_without_following, "planted"), box) == {}
    assert kinds(Function(lambda: Path("made.txt").write_text("inside"), "planted"), box) == {}


def test_a_failing_case_is_reduced_to_the_edits_it_needs():
    class Target:
        def draw(self, rng):
            return [rng.randrange(10), "needed", rng.randrange(10)]

        def stage(self, edits, box):
            return [Function(lambda: {"needed": 1}[edits[edits.index("needed")]] / 0, "planted")]

    (finding,) = run_case(Target(), "planted:0:0", WATCH)
    assert finding.edits == ["needed"]
    assert "planted:0:0: traceback: ZeroDivisionError" in str(finding)


def test_a_text_that_no_case_has_is_looked_for_in_a_limited_time(monkeypatch):
    class Target:
        def draw(self, rng):
            return ["edit"]

    monkeypatch.setattr(campaign, "SEARCHED", 0.1)
    said = []
    assert campaign.run_campaign(Target(), "planted", 1, 0, 1, said.append, only="other") == (0, [])
    assert said[0].startswith("planted: 'other' is not among the edits of cases up to ")


def test_edits_do_what_they_say():
    document = {"a": [1, 2], "b": {"c": 3}}
    assert json_edits.edited(document, [("replace", ("a", 0), "x"), ("delete", ("b", "c"))]) == {"a": ["x", 2], "b": {}}
    assert json_edits.edited(document, [("swap", ("a",), ("b",))]) == {"a": {"c": 3}, "b": [1, 2]}
    assert json_edits.edited(document, [("delete", ("b",)), ("replace", ("b", "c"), 1)]) == {"a": [1, 2]}
    twice = json_edits.edited(document, [("repeat", ("b",), 2)])
    assert json_edits.written(twice, canonical=True) == '{"a":[1,2],"b":{"c":3,"c":3}}'
    assert json_edits.edited_bytes(b"abcd", [("cut off", 0.5), ("insert", 0.0, b"x")]) == b"xab"
    rng = random.Random(0)
    for _ in range(500):
        json_edits.written(json_edits.edited(document, [json_edits.drawn(document, rng) for _ in range(3)]))


def test_every_command_is_drawn_with_light_options():
    found = dict(command_lines.commands())
    assert {"search", "resume", "compare", "analyse shapes", "data fetch"} <= set(found)
    assert {name.split()[0] for name in found} == {*typer.main.get_command(cli.app).commands}
    for name, parameters in found.items():
        words = command_lines._words(name, parameters, {})
        missing = [
            p.name for p in parameters if p.required and p.name not in {**command_lines._USUAL, **command_lines._LIGHT}
        ]
        assert not missing, f"{name} needs {missing}: add usual values for them to tests/fuzzing/command_lines.py"
        assert words[: len(name.split())] == name.split()
    assert cli.app is command_lines.app


def test_every_public_function_is_called_or_left_out_for_a_reason():
    known, left_out = dict(arguments._found()), set(arguments._LEFT_OUT)
    assert left_out <= {*known}, "what is left out does not exist any more"
    called = {*known} - left_out
    assert {"Task.from_arrays", "Task.from_loaders", "plot.curves", "metrics.weighted", "Run.to_dataframe"} <= called
    for module in (evomal, evomal.losses):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value):
                assert value is evomal.losses or any(one.startswith(f"{name}.") for one in called), name
            elif callable(value) and not (inspect.isclass(value) and issubclass(value, EvomalError)):
                assert name in called | left_out


@pytest.mark.parametrize("name", [name for name in evomal.__all__ if inspect.isclass(getattr(evomal, name))])
def test_the_methods_of_every_public_class_are_called(name):
    value = getattr(evomal, name)
    # A callback's methods are the user's own, and the tests of losses call theirs with tensors of every shape.
    if name == "SearchCallback" or issubclass(value, (torch.nn.Module, EvomalError)):
        return
    methods = {
        f"{name}.{method}"
        for method, raw in inspect.getmembers_static(value, inspect.isfunction)
        if not method.startswith("_") and raw.__module__.startswith("evomal") and (name, method) != ("Task", "model")
    }
    assert methods <= {*dict(arguments._found())}


def test_every_required_argument_of_a_public_function_has_a_usual_value():
    missing = arguments.unknown_parameters()
    assert not missing, f"add usual values of {missing} to tests/fuzzing/arguments.py"


def test_a_short_run_finds_nothing(tmp_path):
    counts = ["files:40", "folders:3", "comparisons:3", "settings:20", "commands:3", "arguments:100"]
    counts += ["caches:4", "downloads:10"]
    command = [sys.executable, "-m", "tests.fuzzing", *counts, "--jobs", "1", "--limit", "120"]
    done = finished(command, 600, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "3 commands, 100 arguments, 4 caches, 10 downloads: 0 findings" in done.stdout
