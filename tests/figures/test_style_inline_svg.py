"""Figures within pages."""

import re

from evomal.figures.style import BLUE, INK, figure_style, inline_svg, new_figure


def drawn(prefix):
    figure = new_figure()
    with figure_style():
        figure.subplots().plot([0, 1], [1, 2], color=BLUE, marker="o")
    return inline_svg(figure, "a line", prefix)


def test_names_inside_a_figure_carry_the_prefix_and_only_those_that_are_used_are_kept():
    svg = drawn("f7-")
    names = re.findall(r' id="([^"]*)"', svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    assert names
    assert set(names) == used
    assert all(name.startswith("f7-") for name in names)
    assert len(names) == len(set(names))


def test_a_page_may_choose_other_colours():
    svg = drawn("")
    assert f"stroke: var(--blue, {BLUE})" in svg
    assert "currentColor" in svg
    assert INK not in svg
    assert 'role="img" aria-label="a line"' in svg
    assert "http" not in svg
