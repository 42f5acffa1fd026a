"""Texts of strangers come out as text, letter for letter."""

import pytest

from evomal.text import cut, in_html, in_markdown, included_in_html, included_in_markdown, printable


def test_characters_that_do_something_become_question_marks():
    assert printable("a\x1b[2J\nb\r\u202ec\x00 \ud800") == "a?[2J?b??c? ?"
    assert printable("損失 ∂θ² £") == "損失 ∂θ² £"


def test_a_text_is_cut_only_where_it_is_longer():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"


def test_a_text_in_html_can_neither_open_an_element_nor_leave_an_attribute():
    assert in_html("<a b=\"c\" d='e'>&\x07") == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp;?"


def test_a_text_in_markdown_stays_in_its_cell():
    assert in_markdown("a|b_c*[d](e)<f>`g`$h$\n&\\") == r"a\|b\_c\*\[d\](e)\<f\>\`g\`\$h\$?\&\\"


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
    assert included_in_html(text, "none <yet>") == in_page
    assert included_in_markdown(text, "none <yet>") == in_text
