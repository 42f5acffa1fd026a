"""The tutorials show code and commands that run: with smaller searches, but otherwise as they stand."""

import functools
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import evomal
from evomal.cli import main
from evomal.settings.fields import PAPER_FILTERS, PRESETS
from tests.protocols import ON_RUNGS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
SMALL = {
    **ON_RUNGS, "filters": PAPER_FILTERS, "population": 6, "generations": 1, "meta_steps": 2, "training_steps": 5,
    "filter_steps": 10,
    "final_steps": 5, "finalists": 1, "final_seeds": 2, "device": "cpu", "threads": 1,
}  # fmt: skip
NOT_RUN = {"pip", "evomal doctor"}  # doctor has tests of its own


@pytest.fixture(autouse=True)
def small_searches(monkeypatch, tmp_path):
    monkeypatch.setitem(PRESETS, "quick", {**PRESETS["quick"], **SMALL})
    monkeypatch.setattr(evomal, "train", functools.partial(evomal.train, steps=5))
    monkeypatch.chdir(tmp_path)


def run_command(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code, " ".join(words)


@pytest.mark.parametrize(
    "path",
    # That on many GPUs starts processes, each of which imports torch.
    [pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.stem == "many-gpus")) for path in PAGES],
)
def test_the_code_of_a_tutorial_runs(path, monkeypatch, capsys):
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    names = {"__name__": "tutorial"}
    ran = 0
    for language, block in blocks:
        if language == "python":
            with torch.random.fork_rng():
                exec(compile(block, str(path), "exec"), names)
            ran += 1
            continue
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and not any(line.startswith(skipped) for skipped in NOT_RUN):
                run_command(words, monkeypatch)
                ran += 1
    assert ran
    capsys.readouterr()


def test_every_tutorial_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [path.name for path in PAGES if path.name not in navigation] == []
    assert len(PAGES) == 6
