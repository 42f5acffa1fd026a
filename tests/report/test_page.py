"""The frame that cards and reports share."""

from evomal.report.page import STYLE, entry_list, framed, in_code, scrolling
from tests.report.cards import HOSTILE, Tags


def test_a_page_forbids_everything_but_its_own_style():
    page = Tags(framed(HOSTILE, "<p>body</p>"))
    assert [tag for tag, _ in page.elements] == ["html", "head", "meta", "meta", "meta", "title", "style", "body", "p"]
    policies = [found["content"] for _, found in page.elements if found.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert page.elements[0] == ("html", {"lang": "en"})


def test_the_style_knows_dark_paper_and_telephones():
    assert "@media screen and (prefers-color-scheme: dark)" in STYLE  # on paper everything is light
    assert "@media print" in STYLE
    assert "@media (max-width: 32rem)" in STYLE
    assert not any(text in STYLE for text in ("url(", "@import", "http", "%("))


def test_what_stands_in_a_page_is_escaped_and_cut():
    for made in (in_code(HOSTILE), entry_list([(HOSTILE, HOSTILE)]), scrolling("", HOSTILE)):
        assert {tag for tag, _ in Tags(made).elements} <= {"code", "ol", "li", "span", "div"}
    assert in_code("x" * 20, 10) == f"<code>{'x' * 9}…</code>"
    assert entry_list([]) == ""
