"""Texts of strangers come out as text, letter for letter."""

import pytest

from evomal.text import (
    embed_markdown,
    escape_html,
    escape_markdown,
    markdown_to_html,
    one_line,
    plural,
    printable,
    short_repr,
    shorten,
)


def test_characters_that_do_something_become_question_marks():
    assert printable("a\x1b[2J\nb\r\u202ec\x00 \ud800") == "a?[2J?b??c? ?"
    assert printable("損失 ∂θ² £") == "損失 ∂θ² £"


def test_a_text_is_cut_only_where_it_is_longer():
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"


def test_a_text_in_html_can_neither_open_an_element_nor_leave_an_attribute():
    assert escape_html("<a b=\"c\" d='e'>&\x07") == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp;?"


def test_a_text_in_markdown_stays_in_its_cell():
    assert escape_markdown("a|b_c*[d](e)<f>`g`$h$\n&\\") == r"a\|b\_c\*\[d\](e)\<f\>\`g\`\$h\$?\&\\"


@pytest.mark.parametrize(
    ("text", "in_page", "in_text"),
    [
        (None, "<p>none &lt;yet&gt;</p>", r"none \<yet\>"),
        ("# Title\n\n**b**", "<p><strong>b</strong></p>\n", "**b**"),
        ("first\n\n# head", "<p>first</p>\n<h3>head</h3>\n", "first\n\n### head"),
        ("[l](http://e.vil)", "<p>[l](http://e.vil)</p>\n", r"\[l](http://e.vil)"),
        ("![i](http://e.vil)", "<p>![i](http://e.vil)</p>\n", r"!\[i](http://e.vil)"),
        ("[r]: http://e.vil", "<p>[r]: http://e.vil</p>\n", r"\[r]: http://e.vil"),
        ("a\n\n```\nb", "<p>a</p>\n<p>```\nb</p>\n", "a\n\n\\```\nb"),
        ("a\n===", "<p>a\n===</p>\n", "a\n\\==="),
        ("<b>\x1b", "<p>&lt;b&gt;?</p>\n", "&lt;b>?"),
    ],
)
def test_markdown_of_a_stranger_is_included_without_what_reaches_beyond_it(text, in_page, in_text):
    assert markdown_to_html(text, "none <yet>") == in_page
    assert embed_markdown(text, "none <yet>") == in_text


def test_counts_take_the_plural_unless_they_are_one():
    assert plural(1, "seed") == "1 seed"
    assert plural(0, "seed") == "0 seeds"
    assert plural(1024, "sample") == "1,024 samples"
    assert plural(2, "search") == "2 searches"
    assert plural(0.5, "GPU") == "0.5 GPUs"
    assert plural(1.0, "GPU") == "1 GPU"


def test_any_value_has_a_short_representation():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert short_repr(nested) == "something too large to show"
    assert short_repr(10**5000) == "something too large to show"
    assert short_repr("abcdef", 5) == "'abc…"


def test_the_message_of_an_error_is_one_line():
    assert one_line(ValueError("first\n  second")) == "first second"
    assert one_line(ValueError("abcdef"), 3) == "abc"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
