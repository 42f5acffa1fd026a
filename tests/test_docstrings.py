"""The examples in docstrings run, and give what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import evomal

ROOT = Path(evomal.__file__).parent
EXAMPLE = re.compile(r"^ *>>> (?!.*# doctest: \+SKIP)", re.MULTILINE)
MODULES = [
    ".".join(("evomal", *path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted(ROOT.rglob("*.py"))
    if EXAMPLE.search(path.read_text())
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
