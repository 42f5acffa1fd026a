"""The documents are wrapped, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_lines_have_at_most_120_characters(path):
    long = [line for line in path.read_text().splitlines() if len(line) > 120]
    assert [line for line in long if not line.startswith("|")] == []  # a row of a table cannot be split


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path):
    text = path.read_text()
    headings = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)", text)}
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert [link for link in links if link.startswith("#") and link[1:] not in headings] == []
    files = [link.partition("#")[0] for link in links if not link.startswith("#")]
    assert [file for file in files if not (path.parent / file).exists()] == []


def test_the_results_in_the_readme_are_those_of_the_results():
    """Each row of its table is one of the preset `thorough`, which may continue the task of the row before it.

    Rows that the results do not have are those of other campaigns.
    """

    def rows(name):
        lines = (ROOT / name).read_text().splitlines()
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]

    found, task = {}, []
    for row in rows("docs/results.md"):
        task = row[:3] if row[0] else task
        if len(row) > 6 and "(thorough)" in row[3]:
            found[task[0]] = [*task, row[4], row[5], row[6].partition(" (")[0]]
    for name in ("noise", "imbalance"):  # whose tables also have the loss of each search
        for row in rows(f"docs/results/{name}.md"):
            task = row[:3] if row[0] else task
            if len(row) > 7 and row[3] == "evomal":
                found[task[0]] = [*task, row[4], row[6], row[7].partition(" (")[0]]
    shown = [row for row in rows("README.md") if row[0] != "task"]
    assert len(shown) >= 5
    assert [row for row in shown if found.get(row[0]) != row] == []
