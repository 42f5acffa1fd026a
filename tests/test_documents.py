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
