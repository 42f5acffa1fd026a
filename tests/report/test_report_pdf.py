"""A report on paper."""

import re

import pytest

from evomal.report import report_pdf as module
from evomal.report.report_pdf import report_pdf
from evomal.report.run_report import run_report
from tests.figures.records import row
from tests.report.reports import hostile_comparison, hostile_run, written_run


def page_sizes(content):
    """Inches, of each page."""
    boxes = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
    return [(float(width) / 72, float(height) / 72) for width, height in boxes]


def texts_of(pages):
    return [line.text for page in pages for line in page]


def test_pages_are_as_wide_as_paper(tmp_path):
    content = report_pdf(run_report(written_run(tmp_path / "a")))
    assert content.startswith(b"%PDF-")
    sizes = page_sizes(content)
    assert len(sizes) == 1 + 6 + 1  # text, figures, text
    assert all(width == pytest.approx(8.27, abs=0.02) for width, _ in sizes)
    assert sizes[0][1] == sizes[-1][1] == pytest.approx(11.69, abs=0.01)
    assert b"/Subtype /Image" not in content  # vectors only


@pytest.mark.parametrize("rows", [[], [row(0, 0)]], ids=["nothing", "all rejected"])
def test_what_is_missing_is_said(tmp_path, rows):
    report = run_report(written_run(tmp_path / "a", rows, complete=False))
    text = " ".join(line.text for line in module._front_matter(report))
    assert all(sentence[:30] in text for sentence in report.warnings)
    assert report_pdf(report).startswith(b"%PDF-")


def test_tables_stand_in_columns_without_the_single_seeds():
    head, row_of_one = "| loss | test | a | b | c | d | all seeds |", "| mse, tuned | 1 | 2 | 3 | 4 | 5 | 6 |"
    text = "\n".join(["Head.", "", head, "|---|---|---|---|---|---|---|", row_of_one])
    assert [line.text for line in module._markdown_lines(text)] == [
        "Head.",
        "loss        test  a  b  c  d",
        "mse, tuned  1     2  3  4  5",
    ]


def test_text_that_is_longer_than_a_page_goes_on_on_the_next():
    lines = list(module._wrapped("text", "word " * 2_000)) * 3
    pages = list(module._paged(lines))
    assert len(pages) > 1
    assert texts_of(pages) == [line.text for line in lines]
    room = module._PAPER[1] - 2 * module._MARGIN
    assert all(sum(line.above + module._HEIGHTS[line.kind] for line in page) <= room for page in pages)


def test_a_wide_formula_is_made_smaller():
    short, wide = module._formula_size("$f - y$"), module._formula_size(f"${'f + ' * 60}y$")
    assert short == 15.0
    assert wide < module._SMALLEST_FORMULA


def test_a_stranger_s_texts_neither_break_the_paper_nor_are_mathematics(tmp_path):
    content = report_pdf(run_report(hostile_run(tmp_path / "a")))
    assert len(page_sizes(content)) >= 1 + 5 + 1  # its best is no loss that has a shape
    assert b"/URI" not in content
    assert b"/JavaScript" not in content
    content = report_pdf(run_report(hostile_comparison(tmp_path / "c")))
    assert len(page_sizes(content)) >= 1
    assert b"/URI" not in content
