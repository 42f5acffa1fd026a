"""The command line as a person meets it: output, exit codes, one sentence for bad input."""

import json
import os
import subprocess
import sys

import onnx
import pytest

import evomal
from evomal.cli import main
from evomal.losses import CATALOGUE, FocalLoss
from evomal.tasks import MODELS, TASKS
from evomal.zoo import zoo_names


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["evomal", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return command


@pytest.fixture
def loss_file(tmp_path):
    path = tmp_path / "loss.json"
    evomal.save_loss(evomal.ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.0, 1.0, 1.0]), path)
    return path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "no such command 'nonsense' (see evomal --help)"),
        (["serch"], "no such command 'serch': did you mean 'search', 'serve'? (see evomal --help)"),
        (["data", "fetch", "--data"], "option '--data' requires an argument (see evomal data fetch --help)"),
        (["compare"], "missing argument 'task' (see evomal compare --help)"),
        (["transfer"], "missing option '--to' (see evomal transfer --help)"),
        (["compare", "diabetes", "--seeds", "0"], "invalid value for '--seeds': "),
        (["search", "diabetes", "--seed", "x\x1b[2J"], "invalid value for '--seed': "),
        (["search", "diabetes", "--sed", "1"], "no such option: --sed"),
        (["search", "diabetes", "--set"], "option '--set' requires an argument (see evomal search --help)"),
        (["data", "nix"], "no such command 'nix' (see evomal data --help)"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence(run, arguments, sentence):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"evomal: {sentence}")
    assert err.endswith(" --help)\n")
    assert err.count("\n") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize("arguments", [[], ["analyse"], ["data"]])
def test_without_a_command_the_help_is_shown(run, arguments):
    code, out, err = run(*arguments)
    assert (code, err) == (2, "")
    assert f"Usage: {' '.join(['evomal', *arguments])} [OPTIONS] COMMAND" in out


def test_losses_are_listed(run):
    code, out, _ = run("losses")
    assert code == 0
    assert all(f"\n{name}" in f"\n{out}" for name in CATALOGUE)
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run("losses", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == [*CATALOGUE, *(f"zoo:{name}" for name in zoo_names())]
    assert rows["focal"]["options"] == {"gamma": 2.0}


@pytest.mark.parametrize("to", ["python", "latex", "sympy", "jax"])
def test_export_prints_the_loss(run, loss_file, to):
    code, out, err = run("export", loss_file, "--to", to)
    assert (code, err) == (0, "")
    assert out == f"{str(evomal.export(evomal.load_loss(loss_file), to=to)).rstrip()}\n"
    code, out, _ = run("export", loss_file, "--to", to, "--json")
    assert json.loads(out)["format"] == to


def test_export_writes_files(run, loss_file, tmp_path):
    soft = tmp_path / "soft.onnx"
    code, out, _ = run("export", loss_file, "--to", "onnx", "--out", soft, "--classes", 7, "--probabilities")
    assert code == 0
    assert out.startswith(f"wrote {soft} (")
    onnx.checker.check_model(onnx.load(soft), full_check=True)
    assert len(onnx.load(soft).graph.input[1].type.tensor_type.shape.dim) == 2
    code, _, _ = run("export", loss_file, "--out", tmp_path / "loss.py")
    assert "class LearnedLoss" in (tmp_path / "loss.py").read_text()


def test_tasks_and_models_are_listed(run):
    for command, names in (("tasks", TASKS), ("models", MODELS)):
        code, out, _ = run(command)
        assert code == 0
        assert all(f"\n{name}" in f"\n{out}" for name in names)
        assert max(map(len, out.splitlines())) <= 80
        code, out, _ = run(command, "--json")
        assert [row["name"] for row in json.loads(out)] == list(names)


def test_data_path(run, tmp_path, monkeypatch):
    monkeypatch.setenv("EVOMAL_DATA", str(tmp_path))
    assert run("data", "path")[1] == f"{tmp_path}\n"
    assert run("data", "path", "mnist")[1] == f"{tmp_path / 'mnist'}\n"
    assert json.loads(run("data", "path", "mnist", "--json")[1]) == {"name": "mnist", "folder": str(tmp_path / "mnist")}
    code, out, _ = run("data", "fetch", "diabetes", "--json")
    assert (code, json.loads(out)["folder"]) == (0, str(tmp_path / "diabetes"))
    code, _, err = run("data", "path", "mnits")
    assert code == 2
    assert "did you mean 'mnist'?" in err


SHORT = ("--model", "mlp:hidden=8", "--seeds", 2, "--steps", 20, "--device", "cpu")


def test_train_reports_every_seed(run):
    code, out, _ = run("train", "diabetes", "--loss", "mse", *SHORT)
    assert code == 0
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["diabetes, seed 0", "diabetes, seed 1"]
    assert lines[-1].startswith("diabetes: test mse ")
    assert lines[-1].endswith(" over 2 seeds")
    code, out, _ = run("train", "diabetes", "--loss", "mse", "--outliers", 0.25, *SHORT, "--json")
    record = json.loads(out)
    assert [score["seed"] for score in record["scores"]] == [0, 1]
    assert record["task"]["hardships"]["outliers"] == 0.25
    assert record["task"]["model"] == "mlp:hidden=8"


def test_train_takes_several_tasks(run):
    code, out, _ = run("train", "diabetes", "diabetes", "--loss", "mse", *SHORT, "--json")
    assert code == 0
    assert [entry["metric"] for entry in json.loads(out)] == ["mse", "mse"]


def test_train_says_when_it_diverges(run):
    code, out, _ = run("train", "diabetes", "--loss", "mse", "--lr", 1e6, *SHORT)
    assert code == 0
    assert "seed 0: diverged: the training loss was" in out
    assert out.endswith("2 of 2 seeds diverged\n")


def test_train_on_a_user_s_task(run, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from evomal import load_task\ndef task(): return load_task('diabetes', 'mlp:hidden=4')\n")
    code, out, _ = run("train", f"{path}:task", "--loss", "mae", "--seeds", 1, "--steps", 5, "--device", "cpu")
    assert code == 0
    assert "seed 0: test mse" in out
    code, _, err = run("train", f"{path}:task", "--loss", "mae", "--model", "mlp")
    assert (code, "brings its own model" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["diabtes", "--loss", "mse"], "there is no task named 'diabtes': did you mean 'diabetes'?"),
        (["diabetes", "--loss", "ms", "--model", "mlp:hidden=4"], "loss must be a name (ce, "),
        (["diabetes", "--loss", "mse", "--model", "mlp:hiden=4"], "mlp has no option 'hiden'"),
        (["diabetes", "--loss", "mse", "--label-noise", "0.3"], "label noise is defined for classes only"),
        (["diabetes", "--loss", "mse", "--outliers", "2"], "outliers must be a share of 0 to 1 but got 2.0"),
    ],
)
def test_bad_training_requests(run, arguments, sentence):
    code, out, err = run("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("evomal: ")
    assert sentence in err


def test_version(run):
    assert run("--version") == (0, f"evomal {evomal.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{folder}"], "{folder}: must be a regular file but is a folder"),
        (["{folder}/none.json"], "{folder}/none.json: there is no such file"),
        (["{bad}"], "{bad}: a loss must use both y and f, but abs(f) does not use y"),
        (["{file}", "--to", "java"], "to must be one of python, latex, sympy, onnx, jax but got 'java'"),
        (["{file}", "--to", "onnx"], "onnx is binary: name a file to write it to with --out"),
        (["{file}", "--out", "{folder}"], "{folder}: is a folder, but the name of a file was expected"),
        (["{file}", "--classes", "5"], "python has no option 'classes'"),
        (["{file}", "--probabilities"], "python has no option 'probabilities'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, loss_file, tmp_path, arguments, sentence):
    bad = tmp_path / "bad.json"
    bad.write_text(loss_file.read_text().replace("abs(log(mul(y, f)))", "abs(f)"))
    names = {"folder": tmp_path, "file": loss_file, "bad": bad}
    before = sorted(tmp_path.iterdir())
    code, out, err = run("export", *(argument.format(**names) for argument in arguments))
    assert (code, out) == (2, "")
    assert err == f"evomal: {sentence.format(**names)}\n"
    assert sorted(tmp_path.iterdir()) == before


def test_wrong_usage_is_exit_code_2(run):
    for arguments in (["export"], ["exprot", "x"], ["losses", "--bogus"]):
        code, _, err = run(*arguments)
        assert code == 2
        assert "Traceback" not in err


def test_the_help_of_search_ends_with_the_settings(run):
    code, out, _ = run("search", "--help")
    assert code == 0
    assert "Settings for --set, with their defaults in the preset quick:" in out
    assert " meta_steps (100; paper: 250): Meta steps, which optimise the weights of each " in out
    assert max(map(len, out.splitlines())) <= 80


def without_torch(*words):
    """Run a command that must not import what takes long; what it prints."""
    code = f"""
import sys
from evomal.cli import main
sys.argv = ["evomal", *{words}]
try:
    main()
finally:
    print({{"torch", "numba", "matplotlib"}} & sys.modules.keys(), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "set()\n")
    return done.stdout


@pytest.mark.parametrize("words", [[], ["search"], ["compare"], ["analyse"], ["analyse", "landscape"]])
def test_help_does_not_import_torch(words):
    assert "Usage: evomal" in without_torch(*words, "--help")


def test_tasks_and_the_folders_of_their_data_are_listed_without_torch():
    assert "diabetes  regression, 442 rows of 10" in without_torch("tasks")
    assert without_torch("data", "path", "mnist").endswith("mnist\n")
    assert without_torch("data", "fetch", "diabetes").startswith("diabetes is in ")


def test_as_a_module_and_as_a_command():
    for command in ([sys.executable, "-m", "evomal"], [f"{sys.prefix}/bin/evomal"]):
        done = subprocess.run([*command, "data", "path", "mnist"], capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stdout.endswith("mnist\n")


def test_words_are_completed_in_a_shell():
    asked = {"_EVOMAL_COMPLETE": "complete_bash", "COMP_WORDS": "evomal se", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "evomal"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **asked})
    assert (done.returncode, done.stdout.split()) == (0, ["search", "serve"])


def test_losses_named_in_the_catalogue_are_public():
    public = [getattr(evomal.losses, name) for name in evomal.losses.__all__]
    assert all(made in public for made in CATALOGUE.values())
    assert isinstance(evomal.losses.named_loss("focal", gamma=1.0), FocalLoss)


def test_an_error_is_one_line_whatever_a_file_is_called(run, tmp_path):
    code, out, err = run("card", tmp_path / "two\nlines\x1b[31m.json")
    assert (code, out) == (2, "")
    assert err == f"evomal: {tmp_path}/two\\nlines\\x1b[31m.json: there is no such file\n"
