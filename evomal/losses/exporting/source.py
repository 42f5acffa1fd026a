"""A loss as the source of one Python file that needs torch, or JAX, and nothing else."""

import re
import textwrap
from typing import Any

from evomal.losses.exporting import frames
from evomal.losses.loss import Loss
from evomal.text import LONGEST_FORMULA, plural, printable, shorten
from evomal.units import Units


def to_python(loss: Loss) -> str:
    """The text of a module with the class `LearnedLoss`, an `nn.Module` under the contract of the original."""
    return _assembled(loss, "torch", frames.TORCH)


def to_jax(loss: Loss) -> str:
    """The text of a module with the pure function `loss(output, target)` under the contract of the original."""
    return _assembled(loss, "jnp", frames.JAX)


_STANDARD = {
    "classification": "torch.nn.CrossEntropyLoss",
    "multilabel": "torch.nn.BCEWithLogitsLoss",
    "regression": "torch.nn.MSELoss",
}


_PROGRESS_LINE = "        self.progress = 0.0  # t, the share of the training that is done: set it at every step\n"


def _assembled(loss: Loss, xp: str, frame: frames.Frame) -> str:
    source = loss.source(xp)
    unpacked = [f"{', '.join(('f', *source.extras))} = inputs"] if source.extras else []
    value = "\n".join([*unpacked, *source.lines])
    forward = frame.forward(loss.kind, source, has_units=loss.units is not None)
    helpers = _helpers(frame, value + forward) + frame.terminals(loss.kind, source)
    if loss.units is not None:
        helpers.append(_standardising(loss.units, frame))
    code = frame.module + value + forward + "".join(helpers)
    return frame.module.format(
        docstring=_docstring(loss),
        imports="".join(statement for use, statement in frame.imports.items() if re.search(use, code)),
        helpers="".join(f"{helper}\n\n\n" for helper in helpers),
        value=textwrap.indent(value, "    "),
        arguments=frames.ARGUMENTS[source.applies_to],
        meaning=frames.MEANINGS[source.applies_to],
        stands_for=_STANDARD[loss.kind],
        weight=None if loss.weight is None else loss.weight.tolist(),
        ignore_index=loss.ignore_index,
        reduction=f'"{loss.reduction}"',
        progress_line=_PROGRESS_LINE if "t" in source.extras else "",
        progress=", progress=0.0" if "t" in source.extras else "",
        forward=forward,
    )


def _standardising(units: Units, frame: frames.Frame) -> str:
    """The function that standardises raw outputs and targets."""
    lines = ["def standardised(raw):", f'    """In the units the loss was learned in: {units}."""']
    if units.outputs is None:
        return "\n".join([*lines, f"    return (raw - {units.mean!r}) / {units.scale!r}"])
    mean, scale = (frame.constant(list(numbers)) for numbers in (units.mean, units.scale))  # type: ignore[arg-type]
    count, wanted = units.outputs, plural(units.outputs, "output")
    return "\n".join([
        *lines,
        f"    if raw.shape[-1:] != ({count},):",
        f'        raise ValueError(f"there must be {wanted} but the shape is {{tuple(raw.shape)}}")',
        f"    mean = {mean}",
        f"    scale = {scale}",
        "    return (raw - mean) / scale",
    ])  # fmt: skip


def _helpers(frame: frames.Frame, code: str) -> list[str]:
    """The helpers that the code calls, each before those that call it."""
    found: list[str] = []
    for name, text in reversed(list(frame.helpers.items())):
        calls = re.sub(r'""".*?"""', "", code + "".join(found))  # a docstring calls nothing
        if re.search(rf"(?<![\w.]){name}\(", calls):
            found.insert(0, text)
    return found


def _docstring(loss: Loss) -> str:
    kind = "multilabel classification" if loss.kind == "multilabel" else loss.kind
    about = loss.describe()
    lines = [f"A loss function for {kind}, to be minimised.", "", f"{about.subject}: {about.content}"]
    lines += [f"Formula: {shorten(loss.formula(), LONGEST_FORMULA)}", f"({loss.in_units(None).symbols()})", ""]
    if loss.units is not None:
        lines.append(f"Learned in standardised units: {loss.units}.")
        lines += ["It takes raw outputs and raw targets and standardises both.", ""]
    lines.append("Made by evomal.")
    if loss.provenance:
        lines += ["", "Provenance:", *_entries(loss.provenance)]
    wrapped = []
    for line in lines:
        wrapped += textwrap.wrap(line, 100, subsequent_indent="    ", break_on_hyphens=False) or [""]
    # Provenance comes from files, and must not end the string.
    return "\n".join(printable(line).replace("\\", "/").replace('"', "'") for line in wrapped)


def _entries(provenance: dict[str, Any], indent: str = "  ") -> list[str]:
    lines = []
    for name, value in provenance.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_entries(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {value}")
    return lines
