"""The page of a card stands alone, whatever a stranger writes."""

from evomal.figures.style import COLOUR_NAMES, LINE_STYLES
from evomal.report import loss_card
from tests.report.cards import HARMLESS, Tags


def test_nothing_from_a_stranger_becomes_an_element_of_the_page(hostile_file):
    page = Tags(loss_card(hostile_file).html())
    assert {tag for tag, _ in page.elements} <= HARMLESS
    attributes = {(name, value) for _, found in page.elements for name, value in found.items()}
    assert not any(name.startswith("on") or name == "src" for name, _ in attributes)
    assert all(value.startswith("#") for name, value in attributes if name == "href")
    assert not any("http" in value or "url(h" in value for name, value in attributes if name != "http-equiv")
    assert page.text.count("<script>alert(1)</script>") >= 4  # provenance twice, comparison, transfer: as text
    assert "![i](http://e.vil/i.png)" in page.text
    assert not any(character in page.text for character in "\x00\x07\x1b\r\u202e\ud800")


def test_a_page_refers_to_nothing_outside_and_forbids_scripts(loss_file):
    page = Tags(loss_card(loss_file).html())
    policies = [found["content"] for tag, found in page.elements if found.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert page.count("script") == page.count("link") == page.count("img") == page.count("a") == 0
    style = loss_card(loss_file).html().partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    dark = style.partition("prefers-color-scheme: dark")[2].partition("* {")[0]
    for colour, _ in LINE_STYLES:  # lighter on a dark page
        assert f"--{COLOUR_NAMES[colour]}: {colour};" in style
        assert f"--{COLOUR_NAMES[colour]}: " in dark
        assert colour not in dark
    assert "size: A4" in style
