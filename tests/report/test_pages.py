"""The templates: what pages share, and that every value is escaped."""

import pytest
from jinja2 import UndefinedError

from evomal.report.pages import _environment, own_markup, render
from tests.report.cards import HOSTILE, Tags


def rendered(template, **data):
    return _environment().from_string(template).render(**data)


@pytest.fixture
def page():
    return rendered('{% extends "base.html" %}{% block title %}{{ title }}{% endblock %}', title=HOSTILE)


def test_a_page_forbids_everything_but_its_own_style(page):
    found = Tags(page)
    assert [tag for tag, _ in found.elements] == ["html", "head", "meta", "meta", "meta", "title", "style", "body"]
    policies = [attributes["content"] for _, attributes in found.elements if attributes.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert found.elements[0] == ("html", {"lang": "en"})


def test_the_style_has_rules_for_dark_screens_paper_and_telephones(page):
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert "@media screen and (prefers-color-scheme: dark)" in style  # on paper everything is light
    assert "@media print" in style
    assert "@media (max-width: 32rem)" in style
    assert not any(text in style for text in ("url(", "@import", "http", "{{", "{%"))


@pytest.mark.parametrize(
    "part",
    [
        "{{ parts.code(text) }}",
        "{{ parts.entries([(text, text)]) }}",
        "{% call parts.scrolling(text) %}{{ text }}{% endcall %}",
        "{{ text }}",
        "{{ [text] }}",
        "{{ text | markdown }}",
    ],
)
def test_every_value_is_escaped(part):
    made = rendered(f'{{% import "parts.html" as parts %}}{part}', text=HOSTILE[:-1])
    assert {tag for tag, _ in Tags(made).elements} <= {"code", "ol", "li", "span", "div", "p", "h3", "em", "strong"}
    assert not any(character in made for character in "\x00\x07\x1b\u202e")


def test_own_markup_alone_is_not_escaped():
    assert rendered("{{ a }}{{ b }}", a=own_markup("<svg></svg>"), b="<svg>") == "<svg></svg>&lt;svg&gt;"


def test_long_code_is_shortened_and_an_empty_list_shows_nothing():
    assert rendered('{% import "parts.html" as parts %}{{ parts.code("x" * 20, 10) }}') == f"<code>{'x' * 9}…</code>"
    assert rendered('{% import "parts.html" as parts %}{{ parts.entries([]) }}').strip() == ""


def test_a_value_that_a_template_lacks_is_an_error():
    with pytest.raises(UndefinedError, match="'card' is undefined"):
        render("card.html")
