"""What a stranger's run folder may do: be looked at. Its Python files are not run, its cluster is not joined."""

import json
import re
import socket
from unittest import mock

import pytest

from evomal.runs import RunStore
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.cli.test_search import SHORT
from tests.report.reports import NO_HARDSHIPS, SOURCE, written_run

EVIL = """
from pathlib import Path
Path(__file__).with_name("was run").touch()
from evomal import load_task
def task(): return load_task("diabetes", "mlp:hidden=8")
"""


@pytest.fixture
def evil(tmp_path):
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path / "evil.py"


def was_run(evil):
    """Whether it was since this was last asked."""
    mark = evil.with_name("was run")
    if not mark.exists():
        return False
    mark.unlink()
    return True


@pytest.fixture
def begun(run, evil):  # noqa: F811
    """A search on a file's task that a budget ended after its first generation."""
    folder = evil.parent / "run"
    short = SHORT[2:]  # the file brings its own model
    assert run("search", f"{evil}:task", "--out", folder, *short, "--set", "max_evaluations=1")[0] == 0
    assert was_run(evil)
    return folder


def test_a_file_that_only_the_record_names_is_not_run(run, evil, begun):  # noqa: F811
    before = (begun / "run.sqlite").read_bytes()
    assert run("resume", begun, "--set", "max_evaluations=2") == (
        2, "",
        f"evomal: {begun}: its record names the Python file of {evil}:task, which this command does not run unless "
        f"told to: name the task with --task {evil}:task, or add --trust if the run is your own\n",
    )  # fmt: skip
    assert not was_run(evil)
    assert (begun / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize("words", [["--trust"], ["--task", "evil.py:task"]])
def test_named_again_or_trusted_it_is_run(run, evil, begun, monkeypatch, words):  # noqa: F811
    monkeypatch.chdir(evil.parent)
    code, _, err = run("resume", begun, "--set", "max_evaluations=2", *words)
    assert code == 0, err
    assert was_run(evil)


def test_another_task_that_is_named_is_not_that_of_the_record(run, evil, begun):  # noqa: F811
    other = evil.with_name("other.py")
    other.write_text(EVIL.replace("hidden=8", "hidden=9"))
    code, out, err = run("resume", begun, "--task", f"{other}:task")
    assert (code, out) == (2, "")
    assert f"{begun / 'run.sqlite'}: is the record of another search: " in err


def test_interrupted_the_command_to_resume_names_the_file_again(run, evil, begun, monkeypatch):  # noqa: F811
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evomal.runs.run_loop.search", interrupted)
    assert run("resume", begun, "--trust", "--executor", "ray", "--address", "127.0.0.1:1") == (
        130, "",
        f"evomal: interrupted; resume with `evomal resume {begun} --task {evil}:task --address 127.0.0.1:1`\n",
    )  # fmt: skip


@pytest.mark.parametrize("tasks", ["{evil}:task", {"{evil}:task": 1}, [["{evil}:task"]], None, 7])
def test_tasks_that_are_no_list_of_names_are_refused(run, evil, tasks):  # noqa: F811
    forged = json.loads(json.dumps(tasks).replace("{evil}", str(evil)))
    folder = written_run(evil.parent / "run", workplace={"executor": "local"}, source={**SOURCE, "tasks": forged})
    for words in ([], ["--trust"]):
        code, out, err = run("resume", folder, *words)
        assert (code, out) == (2, "")
        assert err.startswith("evomal: the record does not say which tasks it is about: its list of them is ")
    assert not was_run(evil)


def test_a_model_that_is_no_name_is_refused(run, tmp_path):  # noqa: F811
    folder = written_run(tmp_path, workplace={"executor": "local"}, source={**SOURCE, "model": True})
    sentence = "evomal: the record does not say which tasks it is about: its model is True\n"
    assert run("resume", folder) == (2, "", sentence)


@pytest.fixture
def listening():
    """Somebody who listens; whether a connection came."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def is_called():
            try:
                server.accept()[0].close()
            except TimeoutError:
                return False
            return True

        yield f"127.0.0.1:{server.getsockname()[1]}", is_called


def on_a_cluster(folder, address, **described):
    place = {"executor": "ray", "address": address, "workers": None, "gpus_per_worker": None}
    place |= {"worker_timeout": None, "retries": 2}
    return written_run(folder, complete=False, workplace=place, **described)


def test_an_address_that_only_the_record_names_is_not_called(run, tmp_path, listening):  # noqa: F811
    address, is_called = listening
    folder = on_a_cluster(tmp_path / "run", address)
    assert run("resume", folder) == (
        2, "",
        f"evomal: {folder}: its record names the Ray cluster at {address}, which this command does not join unless "
        f"told to: name it with --address {address}, or add --trust if the run is your own\n",
    )  # fmt: skip
    assert not is_called()


@pytest.mark.parametrize("words", [["--trust"], ["--address"], ["--set"]])
def test_named_again_or_trusted_it_is_called(run, tmp_path, listening, monkeypatch, words):  # noqa: F811
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", mock.Mock(side_effect=ConnectionError("nobody is there")))
    address, is_called = listening
    folder = on_a_cluster(tmp_path / "run", address)
    named = {"--trust": [], "--address": [address], "--set": [f"address={address}"]}[words[0]]
    code, _, err = run("resume", folder, *words, *named)
    assert (code, err) == (2, f"evomal: no Ray cluster answers at {address}: nobody is there\n")
    assert is_called()


def test_here_instead_of_on_its_cluster_a_run_is_resumed_without_a_word(run, tmp_path, listening):  # noqa: F811
    address, is_called = listening
    folder = on_a_cluster(tmp_path / "run", address)
    code, _, err = run("resume", folder, "--executor", "local")
    assert code == 2
    assert "is the record of another search" in err  # it was made by hand
    assert not is_called()


def test_commands_that_only_read_a_run_neither_run_its_code_nor_contact_its_address(run, evil, listening):  # noqa: F811
    address, is_called = listening
    source = {"tasks": [f"{evil}:task"], "model": None, "hardships": NO_HARDSHIPS}
    folder = on_a_cluster(evil.parent / "run", address, source=source)
    with RunStore.read(folder) as store:
        best = store.candidates()[-1]
    loss = {"format": "evomal-loss", "version": 1, "kind": "expression", "task": "regression"}
    loss |= {"expression": best.genome, "weights": list(best.weights), "provenance": {"task": f"{evil}:task"}}
    (folder / "best.json").write_text(json.dumps(loss))
    loss_file, figures = folder / "best.json", ("--out", evil.parent / "out")
    few = ("--model", "mlp:hidden=4", "--seeds", "2", "--set", "final_steps=2", "--out", folder)
    commands = [
        ("runs", folder),
        ("report", folder),
        ("card", loss_file),
        ("export", loss_file),
        ("train", "diabetes", "--loss", loss_file, "--seeds", "1", "--steps", "1"),
        ("compare", "diabetes", "--losses", loss_file, *few),
        ("transfer", "--loss", loss_file, "--to", "diabetes", *few),
        *(("analyse", kind, folder, *figures) for kind in ("curves", "filters", "runtime", "front", "ancestry")),
        ("analyse", "shapes", loss_file, *figures),
    ]
    for command in commands:
        code, _, err = run(*command)
        assert code == 0, (command, err)
    assert not was_run(evil)
    assert not is_called()


def test_the_help_says_what_trust_means(run):  # noqa: F811
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", run("resume", "--help")[1]).split())
    assert "Run the Python files and join the Ray cluster that the record names." in text
