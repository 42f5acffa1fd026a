"""The page on training shows code that runs, and names what there is."""

import re
from pathlib import Path

import torch

import evomal
from evomal.engine import train
from evomal.tasks.optimizers import SCHEDULES

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_code_of_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    with torch.random.fork_rng():
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert names["score"].outcome == "trained"
    for recipe in (
        evomal.Recipe(optimizer=names["without_decay_of_biases_and_norms"], schedule="cosine"),
        evomal.Recipe(optimizer=names["slower_below"], lr=0.1, schedule=names["restarts"]),
    ):
        task = evomal.Task.from_arrays(names["x"], names["y"], model=names["make_net"], recipe=recipe)
        assert train(task, "ce", steps=5, device="cpu").outcome == "trained"
    assert train(names["task"], "ce", steps=5, device="cpu").outcome == "trained"  # the pretrained model


def test_the_page_names_every_schedule():
    assert [name for name in SCHEDULES if f"`{name}" not in PAGE.read_text()] == []
