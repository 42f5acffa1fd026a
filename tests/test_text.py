"""Texts of strangers come out as text, letter for letter."""

import pytest
from markdown_it import MarkdownIt

from evomal.text import (
    as_sentence,
    clock_text,
    embed_markdown,
    escape_html,
    escape_markdown,
    labelled,
    markdown_to_html,
    one_line,
    plural,
    printable,
    short_repr,
    shorten,
    value_text,
    with_article,
)


def test_characters_that_do_something_are_shown_as_escape_sequences():
    assert printable("a\x1b[2J\nb\r\u202ec\x00 \ud800") == r"a\x1b[2J\nb\r\u202ec\x00 \ud800"
    assert printable("\x7f\x85\x9b \u2066\u2069 \u200b\ufeff \u2028\U000e0041") == (
        r"\x7f\x85\x9b \u2066\u2069 \u200b\ufeff \u2028\U000e0041"
    )
    assert printable("a\xa0b\u2009c") == "a b c"
    assert printable("損失 ∂θ² £") == "損失 ∂θ² £"


def test_a_label_stands_before_its_text_also_before_a_word_that_fills_the_line():
    assert labelled("task", "diabetes") == ["task         diabetes"]
    assert labelled("files", "x" * 90) == ["files        " + "x" * 90]
    assert labelled("final", "word " * 20)[1].startswith(" " * 13 + "word")
    assert labelled("empty", "") == ["empty"]


def test_a_sentence_begins_with_a_capital_and_leaves_paths_as_they_are():
    assert as_sentence("the search is complete") == "The search is complete."
    assert as_sentence("run it from the folder /home/Ada/Runs") == "Run it from the folder /home/Ada/Runs."
    assert as_sentence("runs/a b/run.sqlite: is damaged") == "runs/a b/run.sqlite: is damaged."


def test_a_noun_has_the_article_that_it_is_spoken_with():
    for noun in ("int", "object", "Underflow", "ndarray", "MLP", "LSTM", "SGD", "MLPMixer", "OrderedDict"):
        assert with_article(noun) == f"an {noun}"
    for noun in ("Tensor", "UserDict", "uint8", "UNet", "UUID", "Namespace", "Model", "Linear", "DataFrame", "GRU"):
        assert with_article(noun) == f"a {noun}"


def test_a_text_is_cut_only_where_it_is_longer():
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"


def test_a_text_in_html_can_neither_open_an_element_nor_leave_an_attribute():
    assert escape_html("<a b=\"c\" d='e'>&\x07") == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp;\\x07"


def test_a_text_in_markdown_stays_in_its_cell():
    assert escape_markdown("a|b_c*[d](e)<f>`g`$h$\n&\\") == r"a\|b\_c\*\[d\](e)\<f\>\`g\`\$h\$\\n\&\\"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# a", r"\# a"), ("- a", r"\- a"), ("+ a", r"\+ a"), ("1. a", r"1\. a"), ("12) a", r"12\) a"),
        ("---", r"\---"),
        ("===", r"\==="), ("  - a", r"\- a"), ("+0.5", "+0.5"), ("-0.5 to 1", "-0.5 to 1"), ("1.5 a", "1.5 a"),
        ("#a", "#a"),
    ],
)  # fmt: skip
def test_a_line_of_markdown_begins_no_list_and_no_heading(text, escaped):
    assert escape_markdown(text) == escaped
    shown = MarkdownIt().render(f"- {escape_markdown(text)}")
    assert shown == f"<ul>\n<li>{text.strip()}</li>\n</ul>\n"


@pytest.mark.parametrize(
    ("text", "in_page", "in_text"),
    [
        ("# Title\n\n**b**", "<p><strong>b</strong></p>\n", "**b**"),
        ("first\n\n# head", "<p>first</p>\n<h3>head</h3>\n", "first\n\n### head"),
        ("[l](http://e.vil)", "<p>[l](http://e.vil)</p>\n", r"\[l\](http://e.vil)"),
        ("![i](http://e.vil)", "<p>![i](http://e.vil)</p>\n", r"!\[i\](http://e.vil)"),
        ("[r]: http://e.vil", "<p>[r]: http://e.vil</p>\n", r"\[r\]: http://e.vil"),
        ("a\n\n```\nb", "<p>a</p>\n<p>```\nb</p>\n", "a\n\n\\```\nb"),
        ("a\n===", "<p>a\n===</p>\n", "a\n\\==="),
        ("<b>\x1b", "<p>&lt;b&gt;\\x1b</p>\n", r"\<b>\x1b"),
    ],
)
def test_markdown_of_a_stranger_is_included_without_what_reaches_beyond_it(text, in_page, in_text):
    assert markdown_to_html(text) == in_page
    assert embed_markdown(text, "none yet") == in_text
    assert embed_markdown(None, "none <yet>") == r"none \<yet\>"


@pytest.mark.parametrize("before", ["", "\\", "\\\\", "`\\`", "`a\\", "\\`", "`\\\\`", "a\\\\\\"])
@pytest.mark.parametrize(
    "link", ["[x](http://e.vil)", "![x](http://e.vil)", "<http://e.vil>", "<b>x</b>", "[r]\n\n[r]: http://e.vil"]
)
def test_no_backslash_frees_a_link(before, link):
    page = MarkdownIt("commonmark").render(embed_markdown(f"{before}{link}", ""))
    for element in ("<a", "<img", "<b>"):
        assert element not in page


def test_counts_take_the_plural_unless_they_are_one():
    assert plural(1, "seed") == "1 seed"
    assert plural(0, "seed") == "0 seeds"
    assert plural(1024, "sample") == "1,024 samples"
    assert plural(2, "search") == "2 searches"
    assert plural(0.5, "GPU") == "0.5 GPUs"
    assert plural(1.0, "GPU") == "1 GPU"


def test_a_time_is_shown_as_on_a_clock():
    assert [clock_text(seconds) for seconds in (0.9, 61, 36_000)] == ["0:00:00", "0:01:01", "10:00:00"]


def test_any_value_has_a_short_representation():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert short_repr(nested) == "something too large to show"
    assert short_repr(10**5000) == "something too large to show"
    assert short_repr("abcdef", 5) == "'abc…"


def test_the_message_of_an_error_is_one_line():
    assert one_line(ValueError("first\n  second")) == "first second"
    assert one_line(ValueError("a" * 301)) == "a" * 300
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_recorded_values_are_one_short_line():
    assert value_text({"lr": 0.1, "steps": [1, 2], "nesterov": True}) == "lr 0.1, steps 1, 2, nesterov true"
    assert (value_text([]), value_text(None), value_text(1 / 3), value_text("a")) == ("none", "none", "0.333333", "a")
    assert value_text("x" * 50, 10) == "x" * 9 + "…"
    assert value_text({str(number): number for number in range(10**5)}, 20) == "0 0, 1 1, 2 2, 3 3,…"


def test_nested_values_are_shown_to_some_depth():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert value_text({"a": nested}) == "a …"
