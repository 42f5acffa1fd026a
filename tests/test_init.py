"""The public names: imported when they are used, and the same for people, tools and type checkers."""

import ast
import importlib.metadata
import random
import subprocess
import sys
from pathlib import Path

import pytest

import evomal
from evomal import cli, runs
from evomal.extras import lazy_names
from evomal.report import pages


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def declared_names():
    """The public names with their modules, as type checkers read them."""
    found = {}
    (shown,) = (node for node in ast.parse(Path(evomal.__file__).read_text()).body if is_for_type_checkers(node))
    for node in shown.body:
        found |= {alias.name: node.module for alias in node.names}
    return found


def test_every_public_name_is_declared_for_type_checkers():
    assert sorted([*declared_names(), "__version__"]) == sorted(evomal.__all__)


@pytest.mark.parametrize(("name", "module"), declared_names().items())
def test_a_public_name_is_what_type_checkers_are_told(name, module):
    expected = importlib.import_module(f"{module}.{name}") if module == "evomal" else None
    assert getattr(evomal, name) is (expected or getattr(importlib.import_module(module), name))


def test_the_public_names_are_listed():
    assert dir(evomal) == sorted(evomal.__all__)
    namespace = {}
    exec("from evomal import *", namespace)
    assert set(evomal.__all__) <= set(namespace)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'evomal' has no attribute 'serch'"):
        _ = evomal.serch
    with pytest.raises(ImportError, match="cannot import name 'serch'"):
        exec("from evomal import serch")


def test_the_version_is_that_of_the_code_whatever_is_installed(tmp_path, monkeypatch, capsys):
    (tmp_path / "evomal-0.0.1.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: evomal\nVersion: 0.0.1\n"
    (tmp_path / "evomal-0.0.1.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.version("evomal") == "0.0.1"
    monkeypatch.setattr(sys, "argv", ["evomal", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    evomal.save_loss(evomal.losses.FocalLoss(), tmp_path / "loss.json")
    provenance = evomal.load_loss(tmp_path / "loss.json").provenance
    said = {capsys.readouterr().out.split()[1], runs.versions()["evomal"], pages.versions()["evomal"]}
    assert said | {provenance["versions"]["evomal"]} == {evomal.__version__}


@pytest.mark.parametrize("name", ["InputError", "Expression", "SearchSettings"])
def test_names_that_need_no_torch_do_not_import_it(name):
    code = f"import sys; from evomal import {name}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_callers_random_state_survives_the_first_use_of_a_name(tmp_path, monkeypatch):
    (tmp_path / "drawing_module.py").write_text("import random\nnumber = random.random()\n")  # as rich does
    monkeypatch.syspath_prepend(tmp_path)
    before = random.getstate()
    found = lazy_names("tests", {"drawing_module": "number"})("number")
    assert 0 <= found < 1
    assert random.getstate() == before
    del sys.modules["drawing_module"], sys.modules["tests"].number
