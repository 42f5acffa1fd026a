"""Lines with bands: styles that differ, axes that fit, names that do no harm."""

import numpy as np
import pytest

from evomal.figures.style import (
    Band,
    add_legend,
    add_note,
    band_words,
    draw_bands,
    figure_style,
    line_style,
    new_figure,
    panels,
    save_figure,
    shown_name,
)


def drawn(*bands, **options):
    figure = new_figure()
    with figure_style():
        axes = figure.subplots()
        draw_bands(axes, bands, **options)
    return figure, axes


def band(mean, deviation, name="a"):
    return Band(name, np.arange(len(mean)), np.array(mean), np.array(deviation))


def test_the_band_is_a_deviation_to_either_side():
    _, axes = drawn(band([1.0, 2.0], [0.5, 0.25]))
    assert axes.lines[0].get_ydata().tolist() == [1.0, 2.0]
    corners = axes.collections[0].get_paths()[0].vertices.tolist()
    assert all(corner in corners for corner in ([0.0, 0.5], [0.0, 1.5], [1.0, 1.75], [1.0, 2.25]))
    assert axes.get_yscale() == "linear"


def test_without_deviations_there_is_no_band():
    _, axes = drawn(band([1.0, np.inf, 2.0], [np.nan] * 3))
    assert len(axes.collections) == 0
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1.0, np.nan, 2.0])


def test_means_that_are_far_apart_get_a_logarithmic_axis_that_holds_the_band():
    _, axes = drawn(band([1.0, 100.0], [2.0, 300.0]))
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] == pytest.approx(1 / 1.3)
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == pytest.approx(1 / 1.3)
    assert drawn(band([-1.0, 100.0], [2.0, 3.0]))[1].get_yscale() == "linear"
    assert drawn(band([1.0, 100.0], [2.0, 3.0]), far_apart=1000.0)[1].get_yscale() == "linear"


def test_no_two_of_the_first_thirty_six_styles_are_alike():
    assert len({(colour, str(dashes)) for colour, dashes in map(line_style, range(36))}) == 36


def test_names_of_strangers_are_text():
    assert shown_name(r"$\frac{1}$" + "\x1b") == r"\$\frac{1}\$\x1b"
    assert shown_name("_hidden") == " _hidden"
    assert shown_name("x" * 40) == "x" * 25 + "…"
    figure, axes = drawn(band([1.0], [0.0], "_a$"), band([2.0], [0.0], "$\\nonsense{"))
    with figure_style():
        add_legend(figure, axes)
        add_note(figure, "a note on $x")
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [r" _a\$", r"\$\nonsense{"]


def test_words_say_what_was_averaged():
    assert band_words(1) == "one seed"
    assert band_words(5) == "mean of 5 seeds, band: ±1 standard deviation"


def test_panels_are_of_column_width_alone_and_of_page_width_together():
    with figure_style():
        alone, (one,) = panels(1, most=3, height=2.0)
        together, four = panels(4, most=3, height=2.0)
    assert (alone.get_size_inches()[0], together.get_size_inches()[0]) == (3.4, 7.0)
    assert len(four) == 4
    assert [axes.axison for axes in together.axes] == [True] * 4 + [False] * 2
    assert one.axison


def test_a_name_with_bytes_that_are_no_text_is_spelled_in_the_data(tmp_path):
    *_, data = save_figure(new_figure(), tmp_path / "figure", {"loss": ["odd\udcff.json"]})
    assert data.read_text() == "loss\nodd\\udcff.json\n"
