"""The page about known losses names all of them, with their options and defaults."""

import inspect
import re
from pathlib import Path

import pytest

from evomal.losses import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
ROWS = {
    cells[1].strip("` "): cells for line in PAGE.read_text().splitlines() if (cells := re.split(r"(?<!\\)\|", line))[1:]
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_page_names_every_loss_with_its_options(name):
    defaults = inspect.signature(CATALOGUE[name]).parameters
    shown = re.findall(r"`(\w+)`[^(,]*(?:\(([^)]*)\))?", ROWS[name][3])
    assert [option for option, _ in shown] == [*CATALOGUE[name].option_names][: len(shown)]
    assert len(shown) == len(CATALOGUE[name].option_names)
    for option, text in shown:
        default = defaults[option].default
        if isinstance(default, int | float) and "log" not in text:
            assert text.replace("−", "-") == (str(default).lower() if isinstance(default, bool) else f"{default:g}")
