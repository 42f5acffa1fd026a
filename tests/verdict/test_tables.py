"""The tables of a comparison: no name and no sentence acts on a terminal, forges a line or becomes a link."""

from markdown_it import MarkdownIt

from evomal.verdict.tables import comparison_markdown, comparison_text
from tests.verdict.results import comparison, entry

EVIL = "a\x1b[2J\n- forged | \u202e [l](http://e.vil) \\[m](http://e.vil) <b> `c` [bold]"


def evil_and_harmless(name):
    rows = (entry("mse", "plain", 0.1, [0.5, 0.5]), entry(name, "plain", 0.1, [0.5, None]))
    return comparison(*rows, task=name, metric=name, baseline=name, verdicts={name: ("no gain", name)})


def test_a_terminal_shows_every_name_on_its_own_line():
    text = comparison_text(evil_and_harmless(EVIL))
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"a\x1b[2J\n- forged | \u202e [l](http://e.vil)" in text
    assert "\n- forged" not in text


def test_markdown_shows_every_name_in_its_own_cell():
    text = comparison_markdown(evil_and_harmless(EVIL))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n")) == len(comparison_markdown(evil_and_harmless("x")).split("\n"))
    page = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    for element in ("<a", "<b", "<code"):
        assert element not in page
    assert page.count("<tr>") == 3
    assert page.count("<td") == 2 * 7
    assert page.count("<li>") == 2
