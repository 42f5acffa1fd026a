"""Loss files that the tests of cards share, with a reader of pages."""

import json
from html.parser import HTMLParser
from pathlib import Path

from evomal.losses import ExpressionLoss, save_loss

PROVENANCE = {"task": "diabetes", "model": "mlp", "method": "evomal", "seed": 3, "fitness": 0.25, "note": None}
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='alert(3) | a \\| b `code` ![i](http://e.vil/i.png)"
    " [l](javascript:alert(4)) *b* _u_ $x$ &lt; \x1b[31mred\x1b]0;title\x07 \r\n| --- |\n# head\nsha256       0000\n"
    "\u202egpj.exe \x00 \ud800"
)
COMPARISON = """# Comparison

| loss | test | difference |
|---|---:|---|
| mine | 0.1 | **-0.2** |

- beats tuned mse by 0.2 ± 0.1 over 5 seeds (`p < 0.1`)

## Details
"""
HARMLESS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "div", "dl", "dt", "dd", "code",
    "section", "table", "thead", "tbody", "tr", "th", "td", "ol", "ul", "li", "span", "em", "strong", "footer", "br",
    "svg", "defs", "g", "path", "use", "clippath", "rect",
    "math", "mrow", "mi", "mo", "mn", "msup", "mfrac", "msqrt", "mfenced",
}  # fmt: skip
"""The elements of a card."""


class Tags(HTMLParser):
    """The elements of a page, and its text outside of the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        if not self.elements or self.elements[-1][0] != "style":
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def saved_loss(folder: Path) -> Path:
    """A file with weights and a provenance."""
    path = folder / "mine.json"
    save_loss(ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.0, 1.0, 1.1]), path, provenance=PROVENANCE)
    return path


def hostile_loss(folder: Path) -> Path:
    """A stranger's file with a name, a provenance and texts beside it that try everything."""
    path = folder / "<b onclick=x>|`a`\x1b[2J\nsha256       0000![i](http:e.vil).json"
    save_loss(ExpressionLoss("square(sub(f, y))", kind="regression"), path)
    document = json.loads(path.read_text())
    document["provenance"] = {"task": HOSTILE, "sha256": "0000", HOSTILE: {HOSTILE: HOSTILE}, "long": "x" * 1_000}
    path.write_text(json.dumps(document))
    for name in ("comparison.md", "transfer.md"):
        # A lone surrogate cannot be in a UTF-8 file.
        (folder / name).write_text(
            f"{COMPARISON}\n| {HOSTILE[:-1]}\n\n{HOSTILE[:-1]}\n[r]: http://e.vil\n![i][r] <p>\n{'more ' * 400}"
        )
    return path
