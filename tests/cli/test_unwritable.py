"""Folders that cannot be written: one sentence and exit code 2, before anything is computed."""

import os

import pytest

from tests.cli.test_app import run  # noqa: F401  (a fixture)

TASK = ["--model", "mlp:hidden=4", "--device", "cpu"]
CAMPAIGN = """
title = "Small"
about = "Small."
hardware = "any"
presets = ["quick"]
methods = ["evomal"]
losses = ["mae"]
search_seeds = 1
seeds = 1

[[tasks]]
name = "diabetes"
title = "Diabetes"
task = "diabetes"
model = "mlp:hidden=4"
"""
COMMANDS = {
    "search": ["search", "diabetes", *TASK],
    "compare": ["compare", "diabetes", *TASK, "--losses", "mae", "--seeds", "1"],
    "compare methods": ["compare", "diabetes", *TASK, "--methods", "evomal"],
    "transfer": ["transfer", "--to", "diabetes", *TASK, "--loss", "mae", "--seeds", "1"],
    "campaign": ["campaign", "small.toml"],
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(CAMPAIGN)
    (tmp_path / "file").touch()
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_below_a_file(run, place, name):  # noqa: F811
    out = place / "file" / "out"
    code, said, err = run(*COMMANDS[name], "--out", out)
    assert (code, said) == (2, "")
    folder = out / "searches" if "methods" in name else out
    assert err.splitlines()[-1] == f"evomal: {folder}: cannot be created: Not a directory"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_without_permission(run, place, monkeypatch, name):  # noqa: F811
    out = place / "out"
    out.mkdir()
    usual = os.open

    def refused(path, flags, *arguments, **options):
        if str(path).startswith(str(out)) and flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied")
        return usual(path, flags, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        code, said, err = run(*COMMANDS[name], "--out", out)
    assert (code, said) == (2, "")
    assert err.splitlines()[-1].endswith(".run.lock: cannot be written: Permission denied")
    assert not any(path.is_file() for path in out.rglob("*"))
