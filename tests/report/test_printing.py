"""A real browser prints the pages: the print stylesheet is all that a PDF needs."""

import re
import shutil
import subprocess

import pytest

from evomal.report.card import loss_card
from evomal.report.report_page import report_page
from evomal.report.run_report import run_report
from tests.report.reports import written_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-pdf-header-footer",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser was found: {', '.join(BROWSERS)}")
    return found


def printed_pages(browser, page, folder):
    """The sizes of the printed pages, in inches."""
    (folder / "page.html").write_text(page)
    pdf = folder / "page.pdf"
    words = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={pdf}"]
    subprocess.run([*words, (folder / "page.html").as_uri()], check=True, capture_output=True, timeout=120)
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    boxes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", content)
    return [(float(width) / 72, float(height) / 72) for width, height in boxes]


def test_a_report_is_printed_on_a4(browser, tmp_path):
    sizes = printed_pages(browser, report_page(run_report(written_run(tmp_path / "a"))), tmp_path)
    assert len(sizes) >= 3
    assert all(size == pytest.approx((8.27, 11.69), abs=0.02) for size in sizes)


def test_a_card_is_printed_on_at_most_two_pages(browser, loss_file, tmp_path):
    assert 1 <= len(printed_pages(browser, loss_card(loss_file).html(), tmp_path)) <= 2
