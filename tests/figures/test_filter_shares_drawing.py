"""Shares of outcomes as they are drawn."""

import numpy as np

from evomal.figures.filter_shares import OUTCOME_COLOURS, FilterShares, draw_filter_shares, filter_shares
from evomal.methods.candidates import State
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def drawn(folder):
    figure = draw_filter_shares(filter_shares(read_runs([folder])))
    figure.draw_without_rendering()
    return figure


def layers(axes):
    """Heights of each layer by its name."""
    found = {}
    for patch in axes.patches:
        values, _, baseline = patch.get_data()
        found[patch.get_label()] = (values - baseline).tolist()
    return found


def test_layers_add_up_to_all_candidates(tmp_path):
    rows = [row(0, 0, 1.0), row(0, 1), row(0, 2), row(0, 3), row(1, 0, 1.0, "cached"), row(1, 1, 1.0)]
    record(tmp_path, rows)
    figure = drawn(tmp_path)
    (axes,) = figure.axes
    assert layers(axes) == {"evaluated": [25.0, 50.0], "cached": [0.0, 50.0], "rejected": [75.0, 0.0]}
    assert axes.get_xlim() == (0.5, 2.5)
    assert axes.get_ylim() == (0, 100)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("generation", "share of candidates (%)")
    assert axes.get_title() == "evomal, 1 search"
    assert figure.get_supxlabel().startswith("planted, linear: mean share over the searches")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["evaluated", "cached", "rejected"]
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())


def test_every_outcome_has_a_colour_of_its_own():
    assert set(OUTCOME_COLOURS) == set(State)
    assert len(set(OUTCOME_COLOURS.values())) == len(State)


def test_each_method_has_a_panel_and_tasks_are_named_where_there_are_several(tmp_path):
    for number in range(4):
        record(tmp_path / str(number), [row(0, 0, 1.0)], method=f"$m{number}", task=f"t{number % 2}")
    figure = drawn(tmp_path)
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in shown] == [
        "\\$m0, 1 search\nt0, linear", "\\$m2, 1 search\nt0, linear",
        "\\$m1, 1 search\nt1, linear", "\\$m3, 1 search\nt1, linear",
    ]  # fmt: skip
    assert layers(shown[0]) == {"evaluated": [100.0]}


def test_a_generation_of_elites_alone_is_a_gap(tmp_path):
    record(tmp_path, [row(0, 0, 1.0), row(1, 0, 1.0, origin="elite"), row(2, 0, 1.0)])
    (axes,) = drawn(tmp_path).axes
    np.testing.assert_array_equal(layers(axes)["evaluated"], [100, 0, 100])


def test_nothing_to_draw_is_a_sentence():
    (text,) = draw_filter_shares(FilterShares((), "there is no run in here")).texts
    assert text.get_text() == "there is no run in here"
