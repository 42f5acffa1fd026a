"""The page of a report stands alone, whatever is missing, whatever a stranger writes."""

import re

import pytest

from evomal.report.report_page import report_page
from evomal.report.run_report import run_report
from evomal.verdict.folder import write_result
from tests.figures.records import row
from tests.report.cards import HOSTILE, Tags
from tests.report.reports import IN_REPORTS, ROWS, hostile_comparison, hostile_run, written_run
from tests.verdict.results import comparison


def page_of(folder):
    text = report_page(run_report(folder))
    return text, Tags(text)


def require_alone(text, page):
    """Nothing refers to anything outside of the page, and every reference inside of it is kept."""
    assert {tag for tag, _ in page.elements} <= IN_REPORTS
    attributes = [(name, value) for _, found in page.elements for name, value in found.items()]
    assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name, _ in attributes)
    names = [value for name, value in attributes if name == "id"]
    assert len(names) == len(set(names))
    references = {value for name, value in attributes if name == "href"}
    references |= {f"#{name}" for _, value in attributes for name in re.findall(r"url\(#([^)]+)\)", value or "")}
    assert references <= {f"#{name}" for name in names}
    assert not any("http" in (value or "") for name, value in attributes if name not in ("http-equiv", "aria-label"))
    assert not re.search(r"url\((?!#)|@import", text.partition("<body")[0])
    assert "default-src 'none'; style-src 'unsafe-inline'" in text


def test_a_page_has_everything_in_order(tmp_path):
    text, page = page_of(written_run(tmp_path / "a"))
    require_alone(text, page)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "Best loss", "Verdict", "Charts", "Best losses", "Settings", "Environment", "How to repeat it",
    ]  # fmt: skip
    assert re.findall(r"<h1>(.*?)</h1>", text) == ["planted, linear: evomal"]
    drawn = [found for tag, found in page.elements if tag == "svg" and "aria-hidden" not in found]
    assert len(drawn) == 7 + 2  # charts, sparklines
    assert all(found["role"] == "img" and found["aria-label"] for found in drawn)
    assert page.count("math") == 1
    assert "Abs(f - y)" in page.text
    assert "This loss has not been compared" in page.text
    assert f"--out {tmp_path / 'a-again'}" in page.text
    assert len(text) < 3_000_000
    assert report_page(run_report(tmp_path / "a")) == text


def test_several_runs_begin_with_the_verdict(tmp_path):
    write_result(comparison(verdicts={"evomal": ("gain", "evomal beats mse by 1 < 2 & more")}), tmp_path)
    for seed in range(2):
        written_run(tmp_path / f"a{seed}", seed=seed)
    text, page = page_of(tmp_path)
    require_alone(text, page)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings[:5] == ["Verdict", "Best loss", "Charts", "Best losses", "Runs"]
    assert '<li class="gain"><strong>gain</strong>evomal beats mse by 1 &lt; 2 &amp; more</li>' in text
    assert "<td>0.5 ± 0</td>" in text
    assert page.count("pre") == 2  # a command for each search, as that of the comparison is not known


@pytest.mark.parametrize(
    ("rows", "complete"),
    [(ROWS[:2], True), (ROWS, False), ([row(0, 0), row(1, 0)], True), ([], False)],
    ids=["one generation", "interrupted", "all rejected", "nothing yet"],
)
def test_what_is_missing_is_said_instead_of_failing(tmp_path, rows, complete):
    report = run_report(written_run(tmp_path / "a", rows, complete=complete))
    text = report_page(report)
    page = Tags(text)
    require_alone(text, page)
    assert text.count('<p class="note">') == len(report.warnings) > 0
    assert all(sentence in page.text for sentence in report.warnings)
    is_trained = any(candidate.state == "evaluated" for candidate in rows)
    assert ("There is no best loss: nothing was trained." in page.text) is not is_trained


def test_a_stranger_s_command_becomes_no_element_of_the_page(tmp_path):
    text, page = page_of(hostile_comparison(tmp_path))
    require_alone(text, page)
    assert "<script" not in text
    assert "evomal compare" in page.text
    assert page.text.count("<script>alert(1)</script>") >= 1
    assert "\u202e" not in text


def test_nothing_from_a_stranger_becomes_an_element_of_the_page(tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(9)>\"'&"
    text, page = page_of(hostile_run(folder))
    require_alone(text, page)
    assert page.text.count("<script>alert(1)</script>") >= 10
    assert "<script" not in text
    assert "![i](http://e.vil/i.png)" in page.text
    assert not any(character in text for character in HOSTILE if ord(character) < 32 and character != "\n")
    assert "\u202e" not in text
    classes = {found["class"] for tag, found in page.elements if tag == "li" and "class" in found}
    assert classes == {"undecided"}  # a stranger's kind of verdict chooses no style
