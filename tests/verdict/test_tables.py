"""The tables of a comparison: no name and no sentence acts on a terminal, forges a line or becomes a link."""

import dataclasses

import pytest
from markdown_it import MarkdownIt

from evomal.verdict.tables import comparison_markdown, comparison_text
from tests.verdict.results import comparison, entry

EVIL = "a\x1b[2J\n- forged | \u202e [l](http://e.vil) \\[m](http://e.vil) <b> `c` [bold]"


def evil_and_harmless(name):
    rows = (entry("mse", "plain", 0.1, [0.5, 0.5]), entry(name, "plain", 0.1, [0.5, None]))
    return comparison(*rows, task=name, metric=name, baseline=name, verdicts={name: ("no gain", name)})


def test_a_terminal_shows_every_name_on_its_own_line():
    text = comparison_text(evil_and_harmless(EVIL))
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"a\x1b[2J\n- forged | \u202e [l](http://e.vil)" in text
    assert "\n- forged" not in text


def test_a_number_stays_beside_its_sign_where_a_sentence_is_wrapped():
    rows = (entry("mse", "plain", 0.1, [0.5, 0.5]), entry("mae", "plain", 0.1, [0.4, 0.4]))
    for filler in range(60, 80):
        sentence = f"{'x' * filler} p = 0.06"
        text = comparison_text(comparison(*rows, verdicts={"mae": ("gain", sentence)}))
        assert "p = 0.06" in text
        assert max(map(len, text.splitlines())) <= 80


def test_markdown_shows_every_name_in_its_own_cell():
    text = comparison_markdown(evil_and_harmless(EVIL))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n")) == len(comparison_markdown(evil_and_harmless("x")).split("\n"))
    page = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    for element in ("<a", "<b", "<code"):
        assert element not in page
    assert page.count("<tr>") == 3
    assert page.count("<td") == 2 * 7
    assert page.count("<li>") == 2


def beside(variant="tuned", tune_lr=2, **changes):
    """A comparison of two known losses and a learned one, five seeds each; validation is twice the test value."""
    better = [0.4, 0.42, 0.41, 0.43, 0.39]
    rows = [entry(name, variant, 0.1, better) for name in ("mse", "tukey")]
    rows += [entry("mae", variant, 0.1, [0.3, 0.32, 0.31, 0.33, 0.29])]
    rows += [dataclasses.replace(entry("mine", variant, 0.1, [0.2, 0.23, 0.22, 0.21, 0.19]), learned=True)]
    return comparison(*rows, tune_lr=tune_lr, rates=(0.01, 0.1, 1.0), seeds=tuple(range(1000, 1005)), **changes)


def test_a_learned_loss_is_compared_with_the_best_known_loss_that_was_given():
    words = "mine beats mae by 0.100 ± 0.015 over 5 seeds (won 5 of 5; p = 0.06)"
    tuned = f"beside mae, on validation the best of 2 known losses: with both tuned, {words}"
    assert f"- {tuned}\n" in comparison_markdown(beside(metric="x"))
    text = comparison_text(beside())
    assert tuned in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    plain = beside("plain", 0)
    without_mae = [one for one in plain.entries if one.name != "mae"]
    assert "- beside tukey: mine beats tukey by" in comparison_text(dataclasses.replace(plain, entries=(*without_mae,)))


def test_a_difference_to_a_known_loss_that_is_not_shown_is_said_with_its_interval():
    mine = dataclasses.replace(entry("mine", "tuned", 0.1, [0.25, 0.36, 0.28, 0.36, 0.28]), learned=True)
    text = comparison_text(dataclasses.replace(beside(), entries=(*beside().entries[:3], mine)))
    text = " ".join(text.split())
    assert "with both tuned, mine shows no gain over mae: −0.004 (" in text
    assert "keep" not in text


@pytest.mark.parametrize(("rows", "is_said"), [(30, True), (999, True), (1000, False), (None, False)])
def test_few_test_rows_are_said_to_be_the_same_for_all_seeds(rows, is_said):
    found = beside(record={} if rows is None else {"rows": {"test": rows}})
    note = f"intervals and p are over seeds, all on the same {rows} test rows: other rows may show otherwise"
    assert (note in " ".join(comparison_text(found).split())) == is_said


def test_it_is_said_if_nothing_is_compared():
    found = comparison(record={"rows": {"test": 30}})
    assert "only mse, the task's own loss, was trained, so that nothing is compared" in comparison_text(found)
    assert "intervals" not in comparison_text(found)


def test_without_a_learned_or_another_known_loss_there_is_no_such_note():
    found = beside()
    known = tuple(dataclasses.replace(one, learned=False) for one in found.entries)
    for entries in (known, (found.entries[0], found.entries[3])):
        assert "beside" not in comparison_text(dataclasses.replace(found, entries=entries))


def test_the_frame_has_a_row_for_each_training():
    rows = (entry("mse", "plain", 0.1, [0.5, 0.25]), entry("mine", "tuned", 0.3, [0.125, None]))
    frame = comparison(*rows).to_dataframe()
    assert list(zip(frame.name, frame.variant, frame.lr, strict=True)) == [
        ("mse", "plain", 0.1), ("mse", "plain", 0.1), ("mine", "tuned", 0.3), ("mine", "tuned", 0.3),
    ]  # fmt: skip
    assert frame.test.tolist()[:3] == [0.5, 0.25, 0.125]
    assert frame.outcome.tolist() == ["trained", "trained", "trained", "diverged"]
    assert frame.test.isna().tolist() == [False, False, False, True]


def test_a_search_that_found_nothing_is_a_row_without_numbers():
    found = entry("evomal", "plain", 0.1, [0.5])
    frame = comparison(dataclasses.replace(found, losses=(None, *found.losses))).to_dataframe()
    assert frame.outcome.tolist() == ["nothing found", "trained"]
    assert frame.search.tolist() == [0, 1]
    assert frame.test.isna().tolist() == [True, False]
