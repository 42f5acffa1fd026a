"""The loss card: one page about one loss file, to be sent around."""

import hashlib
import importlib.metadata
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.analysis.shapes import LossShape, loss_shape
from evomal.errors import InputError
from evomal.losses import CATALOGUE, ExpressionLoss, Loss, NeuralLoss, TaylorLoss, load_loss
from evomal.losses.catalogue import name_of
from evomal.losses.contract import Provenance
from evomal.losses.exporting import export
from evomal.losses.files import described
from evomal.report.card_page import html_page
from evomal.report.card_text import markdown_text
from evomal.report.harmless import cut, printable
from evomal.report.typeset import formula_text, mathml, symbols_of
from evomal.units import Units
from evomal.verdict.contestants import SEARCHES

_LONGEST_INCLUDED = 100_000
_LONGEST_LATEX = 500
_LONGEST_ENTRY, _LONGEST_NODE = 120, 24
_MOST_PARAMETERS, _MOST_ENTRIES = 30, 16


@dataclass(frozen=True)
class Card:
    """What there is to say of a loss file; nothing is escaped yet."""

    file: str
    """The file's name without its folder."""
    kind: str
    """How the loss is given: expression, taylor, neural or named."""
    task: str
    subject: str
    formula: str
    written: str
    symbols: str
    parameters: tuple[tuple[str, float], ...]
    """The weights by node in prefix order, or the numbers of the polynomial."""
    latex: str | None
    mathml: str | None
    options: Mapping[str, Any]
    units: Units | None
    """Of the targets the loss was learned on, where those were standardised."""
    shape: LossShape
    provenance: Provenance
    comparison: str | None
    """Markdown."""
    transfer: str | None
    """Markdown."""
    sha256: str
    versions: Mapping[str, str]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return Path(self.file).stem

    @property
    def is_rewritten(self) -> bool:
        """Whether the formula is other than what the file has."""
        return self.written != self.formula

    @property
    def made_with(self) -> str:
        """The versions in words."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    def as_data(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        plot = {
            name: [value if math.isfinite(value) else None for value in column]
            for name, column in self.shape.columns().items()
        }
        properties = [
            {"name": found.name, "holds": found.holds, "sentence": found.sentence}
            for found in self.shape.range_of_validity
        ]
        return {
            "name": self.name, "file": self.file, "kind": self.kind, "task": self.task, "formula": self.formula,
            "written": self.written, "parameters": [{"name": name, "value": value} for name, value in self.parameters],
            "latex": self.latex, "options": dict(self.options), "target_mean": self.units and self.units.mean,
            "target_scale": self.units and self.units.scale, "properties": properties, "plot": plot,
            "provenance": self.provenance, "comparison": self.comparison, "transfer": self.transfer,
            "sha256": self.sha256, "versions": dict(self.versions),
        }  # fmt: skip

    def provenance_entries(self) -> list[tuple[str, str]]:
        """The provenance as rows, the longest cut."""
        shown = [
            (cut(name, _LONGEST_ENTRY), cut(_text(value), _LONGEST_ENTRY)) for name, value in self.provenance.items()
        ]
        hidden = len(shown) - _MOST_ENTRIES
        return shown if hidden <= 0 else [*shown[:_MOST_ENTRIES], ("…", f"{hidden} more in the file")]

    def option_entries(self) -> list[tuple[str, str]]:
        """The options as rows."""
        return [(name, cut(_text(value), _LONGEST_ENTRY)) for name, value in self.options.items()]

    def parameter_entries(self) -> list[tuple[str, str]]:
        """The first parameters as rows."""
        shown = [(name, f"{value:.6g}") for name, value in self.parameters]
        hidden = len(shown) - _MOST_PARAMETERS
        return shown if hidden <= 0 else [*shown[:_MOST_PARAMETERS], ("…", f"{hidden} more in the file")]

    def comparison_sentence(self) -> str:
        """How to get a comparison where there is none."""
        return f"not compared yet: evomal compare TASK --losses {self._quoted_file()} --out ."

    def transfer_sentence(self) -> str:
        """How to get a transfer where there is none."""
        return f"not transferred yet: evomal transfer --loss {self._quoted_file()} --to TASK --out ."

    def markdown(self, figure: str | None = None) -> str:
        """The card as Markdown; `figure` is the address of the plot, as seen from where the text will lie."""
        return markdown_text(self, figure)

    def html(self) -> str:
        """The card as one file that opens anywhere: no script, nothing from elsewhere."""
        return html_page(self)

    def shown_latex(self) -> str | None:
        """The formula in LaTeX, or the command that prints it where it is too long for a page."""
        if self.latex is None or len(self.latex) <= _LONGEST_LATEX:
            return self.latex
        return f"evomal export {self._quoted_file()} --to latex"

    def _quoted_file(self) -> str:
        return shlex.quote(printable(self.file))


def loss_card(path: Path | str, *, comparison: str | None = None, transfer: str | None = None) -> Card:
    """The card of a loss file.

    Comparison and transfer are Markdown; where none is given, `comparison.md` or `transfer.md` beside the file is read,
    or that of the comparison which searched for the loss.
    """
    path = Path(path)
    loss = load_loss(path)
    subject, written, parameters = _content(loss)
    document = described(loss)
    formula = formula_text(loss)
    return Card(
        file=path.name,
        kind=document["kind"],
        task=loss.kind,
        subject=f"{subject} for {loss.kind}",
        formula=formula,
        written=written,
        symbols=symbols_of(loss),
        parameters=parameters,
        latex=None if isinstance(loss, NeuralLoss) else str(export(loss, "latex")),
        mathml=mathml(loss, formula),
        options=document["options"],
        units=loss.units,
        shape=loss_shape(loss, classes=_classes(loss)),
        provenance=loss.provenance,
        comparison=comparison or _beside(path, "comparison.md"),
        transfer=transfer or _beside(path, "transfer.md"),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        versions={name: importlib.metadata.version(name) for name in ("evomal", "torch", "matplotlib")},
    )


def _content(loss: Loss) -> tuple[str, str, tuple[tuple[str, float], ...]]:
    """What the loss is, its content as written, its numbers by name."""
    if isinstance(loss, ExpressionLoss):
        tree = loss.expression
        weights = [1.0] * tree.edges if loss.weights is None else loss.weights.tolist()
        nodes = [cut(str(tree.subtree(position)), _LONGEST_NODE) for position in range(1, tree.size)]
        names = zip(nodes, weights, strict=True)
        return f"An expression of {tree.size} nodes", str(tree), tuple(names)
    if isinstance(loss, TaylorLoss):
        numbers = tuple((f"θ{index}", value) for index, value in enumerate(loss.theta.tolist()))
        return "A TaylorGLO polynomial", ", ".join(f"{value:g}" for _, value in numbers), numbers
    if isinstance(loss, NeuralLoss):
        shapes = ", ".join("×".join(map(str, layer.shape)) for layer in loss.layers)
        return "An ML³ network", f"matrices of {shapes}", ()
    name = str(name_of(loss))
    return "A hand-made loss", f"{name}: {CATALOGUE[name].purpose}", ()


def _classes(loss: Loss) -> int:
    """As many as the loss has class weights for, within what can be sampled quickly."""
    return 10 if loss.weight is None else min(max(len(loss.weight), 2), 1_000)


def _beside(path: Path, name: str) -> str | None:
    beside = path.with_name(name)
    try:
        if not beside.exists() and path.absolute().parent.parent.name == SEARCHES:
            beside = path.absolute().parents[2] / name  # the comparison that the search was made for
        if not beside.exists():
            return None
        with beside.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_INCLUDED + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{beside}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > _LONGEST_INCLUDED:
        raise InputError(f"{beside}: must have at most {_LONGEST_INCLUDED} characters but has more")
    return text.strip() or None


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_text, value[:_LONGEST_ENTRY]))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
