"""The page on the architecture names files and packages that exist."""

import re
from pathlib import Path

import pytest

import evomal

ROOT = Path(evomal.__file__).parent
PAGE = ROOT.parent / "docs" / "architecture.md"
NAMED = sorted(set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", PAGE.read_text())))


def test_the_page_names_many_files():
    assert len(NAMED) > 40


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_exists(name):
    places = [ROOT, ROOT.parent, *(ROOT / room for room in ("forest", "losses", "tasks", "engine", "methods", "runs"))]
    assert any((place / name).exists() for place in places)


def test_every_package_is_named():
    packages = {f"{path.name}/" for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(NAMED)
