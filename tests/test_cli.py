"""The command line as a person meets it: output, exit codes, one sentence for bad input."""

import json
import subprocess
import sys

import onnx
import pytest

import evomal
from evomal.cli import main
from evomal.losses import CATALOGUE, FocalLoss


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


def test_losses_are_listed(run):
    code, out, _ = run("losses")
    assert code == 0
    assert all(f"\n{name}" in f"\n{out}" for name in CATALOGUE)
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run("losses", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == list(CATALOGUE)
    assert rows["focal"]["options"] == {"gamma": 2.0}


@pytest.mark.parametrize("to", ["python", "latex", "sympy", "jax"])
def test_export_prints_the_loss(run, loss_file, to):
    code, out, err = run("export", loss_file, "--to", to)
    assert (code, err) == (0, "")
    assert out == f"{str(evomal.export(evomal.load_loss(loss_file), to=to)).rstrip()}\n"
    code, out, _ = run("export", loss_file, "--to", to, "--json")
    assert json.loads(out)["format"] == to


def test_export_writes_files(run, loss_file, tmp_path):
    code, out, _ = run("export", loss_file, "--to", "onnx", "--out", tmp_path / "loss.onnx", "--classes", 7)
    assert code == 0
    assert out.startswith(f"wrote {tmp_path / 'loss.onnx'} (")
    onnx.checker.check_model(onnx.load(tmp_path / "loss.onnx"), full_check=True)
    code, _, _ = run("export", loss_file, "--out", tmp_path / "loss.py")
    assert "class LearnedLoss" in (tmp_path / "loss.py").read_text()


def test_version(run):
    assert run("--version") == (0, f"evomal {evomal.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{folder}"], "{folder}: is a folder, but a loss file was expected"),
        (["{folder}/none.json"], "{folder}/none.json: there is no such file"),
        (["{bad}"], "{bad}: a loss must use both y and f, but abs(f) does not use y"),
        (["{file}", "--to", "java"], "a loss is exported to one of python, latex, sympy, onnx, jax but got 'java'"),
        (["{file}", "--to", "onnx"], "onnx is binary: name a file to write it to with --out"),
        (["{file}", "--out", "{folder}"], "{folder}: is a folder, but the name of a file was expected"),
        (["{file}", "--classes", "5"], "python has no option 'classes'"),
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


def test_as_a_module_and_as_a_command(loss_file):
    for command in ([sys.executable, "-m", "evomal"], [f"{sys.prefix}/bin/evomal"]):
        done = subprocess.run([*command, "export", loss_file, "--to", "latex"], capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stdout.startswith(r"\left|2 \cdot \log")


def test_losses_named_in_the_catalogue_are_public():
    public = [getattr(evomal.losses, name) for name in evomal.losses.__all__]
    assert all(row.make in public for row in CATALOGUE.values())
    assert isinstance(evomal.losses.named_loss("focal", gamma=1.0), FocalLoss)
