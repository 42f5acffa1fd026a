"""A card as text keeps to its lines, whatever a stranger writes."""

import hashlib

from markdown_it import MarkdownIt
from rich.cells import cell_len

from evomal.losses import ExpressionLoss, save_loss
from evomal.report import loss_card
from evomal.report.card import terminal_lines
from tests.report.cards import COMPARISON, HARMLESS, Tags


def test_nothing_from_a_stranger_becomes_markup_of_the_markdown(hostile_file):
    text = loss_card(hostile_file).markdown("a figure(1).svg")
    rendered = Tags(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    assert {tag for tag, _ in rendered.elements} <= HARMLESS | {"img", "pre"}
    assert [found["src"] for tag, found in rendered.elements if tag == "img"] == ["a%20figure%281%29.svg"]
    assert [tag for tag, _ in rendered.elements].count("h1") == 1
    rows = rendered.text.splitlines()
    assert any(row.startswith("<script>alert(1)</script>") for row in rows)
    cells = [line for line in text.splitlines() if line.startswith("| task |")]
    assert len(cells) == 1
    assert not any(character in text for character in "\x00\x07\x1b\r\u202e\ud800")


def test_the_terminal_card_fits_and_sends_no_control_characters(hostile_file):
    lines = list(terminal_lines(loss_card(hostile_file)))
    assert max(map(cell_len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("yes  finite ") for line in lines)
    assert any(line.endswith(" more lines: see --json") for line in lines)
    assert [line[13:17] for line in lines if line.startswith("sha256")] != ["0000"]
    assert sum(line.startswith("sha256") for line in lines) == 1


def test_the_terminal_card_says_the_same_in_eighty_columns(loss_file):
    loss_file.with_name("comparison.md").write_text(COMPARISON)
    lines = list(terminal_lines(loss_card(loss_file)))
    assert lines[0] == "mine: an expression of 5 nodes for classification"
    assert "formula      2*Abs(log(1.1*Abs(f*y)))" in lines
    assert "written      abs(log(mul(y, f)))" in lines
    assert "parameters   2, 1, 1, 1.1" in lines
    assert f"{'no   minimum at p = 1':<32}lowest at p* = 0.9091, so it lowers p above that" in lines
    assert lines[lines.index("provenance, as the file has it") + 5] == "  fitness    0.25"
    assert "comparison   - beats tuned mse by 0.2 ± 0.1 over 5 seeds (`p < 0.1`)" in lines
    assert not any("| mine |" in line for line in lines)
    assert f"sha256       {hashlib.sha256(loss_file.read_bytes()).hexdigest()}" in lines
    assert max(map(len, lines)) <= 80


def test_names_in_the_provenance_are_whole(tmp_path):
    path = tmp_path / "mine.json"
    save_loss(ExpressionLoss("mul(y, f)"), path, provenance={"learning_rate": 0.1, "seed": 3})
    lines = list(terminal_lines(loss_card(path)))
    assert "  learning_rate 0.1" in lines
    assert "  seed          3" in lines


def test_wide_letters_are_counted_as_they_are_shown(tmp_path):
    path = tmp_path / "損失.json"
    save_loss(ExpressionLoss("mul(y, f)"), path, provenance={"損失関数の課題の名前": "手書き数字" * 30})
    lines = list(terminal_lines(loss_card(path)))
    assert lines[0].startswith("損失: an expression")
    assert max(map(cell_len, lines)) <= 80
