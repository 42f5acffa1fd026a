"""The table of the best losses."""

from dataclasses import replace

from evomal.report.best_losses import best_losses
from evomal.report.loss_table import loss_table, table_sentence
from evomal.report.pages import render
from evomal.runs.reading import read_runs
from tests.figures.records import record, row
from tests.report.cards import Tags
from tests.report.reports import ROWS, SQUARE

LONG = "add(square(sub(f, y)), add(square(sub(f, y)), add(tanh(sub(y, f)), abs(sub(max(y, 1), tanh(f))))))"


def table_of(folder, **options):
    (best,) = best_losses(read_runs([folder]))
    return Tags(render("loss_table.html", table=loss_table(best, **options))), best


def test_a_row_has_its_rank_value_shape_size_formula_generation_and_origin(tmp_path):
    page, best = table_of(record(tmp_path, ROWS), with_runs=False)
    head = "rankvalidation mseshapesizeformulagenerationorigin"
    assert head + "10.254Abs(f - y)2mutation20.542.25*(f - y)**21initial" in page.text.replace("\n", "")
    assert [page.count(tag) for tag in ("tr", "svg", "details")] == [3, 2, 0]
    assert {found["scope"] for tag, found in page.elements if tag == "th"} == {"col"}
    shapes = [found["aria-label"] for tag, found in page.elements if tag == "svg"]
    assert shapes == ["value over the error f − y from -3 to 3, for y = −1, 0 and 1"] * 2
    assert table_sentence(best) == (
        "The best 2 distinct losses of 2 trained; losses with the same shape or the same formula count once; "
        "shapes: value over the error f − y from -3 to 3, for y = −1, 0 and 1, each with its own scale."
    )


def test_formulas_are_said_to_be_without_the_factor_of_their_learning_rate(tmp_path):
    rows = [replace(row(0, 0, 0.1, weights=(1.0, 1.0, 1.0)), factor=2.75)]
    _, best = table_of(record(tmp_path, rows), with_runs=False)
    assert "; formulas are without the factor that belongs to their learning rate; " in table_sentence(best)


def test_several_runs_say_of_which_a_loss_is(tmp_path):
    page, _ = table_of(record(tmp_path, ROWS, method="random", seed=7), with_runs=True)
    assert "originmethodseed" in page.text
    assert "mutationrandom7" in page.text


def test_a_long_formula_is_cut_and_opens_to_the_whole(tmp_path):
    page, best = table_of(record(tmp_path, [row(0, 0, 0.1, genome=LONG, weights=[1.23456] * 23)]), with_runs=False)
    formula = best.rows[0].formula
    assert len(formula) > 90
    assert page.count("details") == page.count("summary") == 1
    assert f"{formula[:89]}…{formula}" in page.text


def test_a_table_scrolls_in_a_box_that_has_a_name(tmp_path):
    page, _ = table_of(record(tmp_path, [row(0, 0, 0.1, genome=SQUARE)]), with_runs=False)
    (box,) = [found for tag, found in page.elements if tag == "div"]
    assert box == {"class": "scroll", "role": "region", "tabindex": "0", "aria-label": "the best distinct losses"}
