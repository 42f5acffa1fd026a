"""`evomal doctor`: what it finds, and that it notices what is wrong."""

import dataclasses
import importlib.metadata
import json
import sys

import pytest
import torch

import evomal
from evomal.cli import doctor, main
from evomal.losses import expression_kernels, kernels_cpu

LOSSES, GRADIENT, COMPUTED = kernels_cpu.losses, kernels_cpu.gradient, expression_kernels._computed


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*words):
        monkeypatch.setattr(sys, "argv", ["evomal", "doctor", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().out

    return command


def test_what_is_found_as_json(run, tmp_path):
    code, out = run("--data", tmp_path, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    assert found["versions"]["evomal"] == evomal.__version__
    threads = torch.get_num_threads()
    assert found["devices"]["cpu"].endswith("uses 1 thread" if threads == 1 else f"uses {threads} threads")
    assert found["kernels"]["numba"]["problem"] is None
    assert found["data"]["folder"] == str(tmp_path)
    assert found["data"]["found"]["diabetes"] is True  # comes with scikit-learn
    assert found["data"]["found"]["mnist"] is False
    assert found["extras"]["search"] == []
    assert "dev" not in found["extras"]


def test_what_is_missing_is_said_with_its_remedy(run, tmp_path, monkeypatch):
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("ray", "triton") else version(name))
    wanted = doctor.extras()
    monkeypatch.setattr(doctor, "extras", lambda: {**wanted, "many": [f"no-such-library-{n}" for n in range(9)]})
    code, out = run("--data", tmp_path)
    assert code == 0
    assert "triton is not installed\n" in out
    assert "  numba on cpu: agree with torch (" in out
    assert "  mnist: missing: evomal data fetch mnist\n" in out
    assert f"  boston: missing: put boston_house_prices.csv into {tmp_path / 'boston'}\n" in out
    assert "  ray: without ray: pip install 'evomal[ray]'\n" in out
    assert "  search: installed\n" in out
    assert "    pip install 'evomal[many]'\n" in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line)


def wrong_values(*arguments):
    found = LOSSES(*arguments)
    return dataclasses.replace(found, losses=1.001 * found.losses)


def wrong_gradients(*arguments):
    return 1.001 * GRADIENT(*arguments)


def wrong_trees(*arguments, keep):
    losses, gradient = COMPUTED(*arguments, keep=keep)
    return 1.001 * losses, gradient


@pytest.mark.parametrize(
    ("module", "name", "wrong", "sentence"),
    [
        (kernels_cpu, "losses", wrong_values, "the value of FocalLoss differs from torch's by a relative error of 1"),
        (kernels_cpu, "gradient", wrong_gradients, "the gradient of FocalLoss differs"),
        (expression_kernels, "_computed", wrong_trees, "the value of ExpressionLoss differs"),
    ],
)  # fmt: skip
def test_a_kernel_that_computes_something_else_is_noticed(run, tmp_path, monkeypatch, module, name, wrong, sentence):
    monkeypatch.setattr(module, name, wrong)
    code, out = run("--data", tmp_path)
    assert code == 1
    assert f"  numba on cpu: {sentence}" in out


def test_a_compiler_that_fails_is_noticed(run, tmp_path, monkeypatch):
    def broken(device):
        raise OSError("no space left\non the device")

    monkeypatch.setattr(doctor, "_difference", broken)
    code, out = run("--data", tmp_path)
    assert code == 1
    assert "  numba on cpu: " in out
    assert "no space left" in out


def test_without_compilers_torch_computes(run, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_kernels", dict)
    code, out = run("--data", tmp_path)
    assert code == 0
    assert "  none: losses are computed by torch operations, which is slower for large outputs\n" in out
