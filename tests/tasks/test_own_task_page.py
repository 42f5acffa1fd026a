"""The page on tasks of one's own shows code that runs."""

import re
from pathlib import Path

import torch

from evomal.tasks.task import Task

PAGE = Path(__file__).parents[2] / "docs" / "own-task.md"


def test_the_code_of_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    assert isinstance(names["task"], Task)


def test_the_page_names_every_argument_that_makes_parts():
    arguments = {"classes", "ignore_index", "groups", "order", "sample_weight", "class_weight", "standardise"}
    assert [name for name in sorted(arguments) if name not in PAGE.read_text()] == []
