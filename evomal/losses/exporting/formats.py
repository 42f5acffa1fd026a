"""Losses in the forms that other programs take: the function `export`, and the ONNX graph."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from evomal.checks import MOST_CLASSES, whole_number
from evomal.errors import InputError
from evomal.expression.operators import PROGRESS
from evomal.extras import optional_library
from evomal.forest.terminals import uses_priors
from evomal.losses.exporting.source import to_jax, to_python
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.loss import Loss
from evomal.losses.priors import PriorLoss
from evomal.text import short_repr

MAX_ONNX_NODES = 1_000
"""Torch's exporter takes about 20 ms for each node, which would be minutes for the largest trees."""


def to_sympy(loss: Loss) -> Any:
    """Returns the loss of one output as a SymPy expression; if the loss has units, of raw values.

    Outputs with different units share the expression, with the symbols mu and sigma for their mean and scale.
    """
    form = loss.sympy()
    if loss.units is None:
        return form
    import sympy

    from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL

    if loss.units.outputs is None:
        mean, scale = sympy.Float(loss.units.mean), sympy.Float(loss.units.scale)
    else:
        mean, scale = sympy.Symbol("mu", real=True), sympy.Symbol("sigma", positive=True)
    return form.xreplace({symbol: (symbol - mean) / scale for symbol in (TARGET_SYMBOL, PREDICTION_SYMBOL)})


_OF_ONNX = ("classes", "probabilities")
"""The options of `to_onnx`, the only ones of any format."""


def to_onnx(loss: Loss, classes: int | None = None, probabilities: bool = False) -> bytes:
    """Returns a serialised graph from (output, target) to the loss, for any number of samples.

    The graph is also for any number of classes or labels, unless `classes` is given or the loss has class weights or
    priors.

    Classification takes logits `(N, C)` and class indices `(N,)`, or with `probabilities` targets `(N, C)`; multilabel
    takes targets between 0 and 1 of that shape, regression values `(N,)`, or `(N, D)` where D outputs have units of
    their own.
    """
    for needed in ("onnx", "onnxscript"):
        optional_library(needed, "export to onnx", "'evomal[onnx]'")
    if (tree := loss.tree()) is not None and tree.expression.size > MAX_ONNX_NODES:
        raise InputError(
            f"an expression of at most {MAX_ONNX_NODES:,} nodes can be exported to onnx but this one has "
            f"{tree.expression.size:,}: export it as python or jax"
        )
    is_for_any_number = classes is None and loss.classes is None
    if classes is None:
        classes = loss.classes or 5  # an example to trace
    whole_number("classes", classes, at_least=2, at_most=MOST_CLASSES)
    if loss.classes not in (None, classes):
        raise InputError(
            f"classes must be {loss.classes}, as many as the loss has class weights or priors, but got {classes}"
        )
    if probabilities and loss.kind != "classification":
        raise InputError(f"probabilities is an option of classification losses but this one is for {loss.kind}")
    samples = 3  # an example to trace; one sample alone would be taken for a constant
    if loss.kind == "regression":
        several = () if loss.units is None or loss.units.outputs is None else (loss.units.outputs,)
        example = (torch.rand(samples, *several), torch.rand(samples, *several))
    elif loss.kind == "multilabel" or probabilities:
        example = (torch.rand(samples, classes), torch.zeros(samples, classes))
    else:
        example = (torch.rand(samples, classes), torch.zeros(samples, dtype=torch.long))
    batch = {0: torch.export.Dim("batch", min=1)}
    of_outputs = dict(batch)
    if is_for_any_number and loss.kind != "regression":
        of_outputs[1] = torch.export.Dim("classes", min=2)
    with _quiet_exporter():
        program = torch.onnx.export(
            copy.deepcopy(loss).eval(),
            example,
            dynamo=True,
            dynamic_shapes=(of_outputs, of_outputs if example[1].dim() == 2 else batch),
            input_names=["output", "target"],
            output_names=["loss"],
            verbose=False,
        )
    if program is None:
        raise InputError("the ONNX exporter returned no graph")
    model = program.model_proto
    _strip(model)
    return bytes(model.SerializeToString())


def _strip(message: Any) -> None:
    """Remove doc strings and metadata: the exporter writes stack traces with paths of this machine there."""
    for field, value in list(message.ListFields()):
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in value if isinstance(value, Sequence) else [value]:
                _strip(part)


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter, whose warnings about its own internals do not concern a loss."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


FORMATS: dict[str, Callable[..., Any]] = {
    "python": to_python,
    "latex": Loss.latex,
    "sympy": to_sympy,
    "onnx": to_onnx,
    "jax": to_jax,
}
"""Functions from a loss to each form that `export` offers."""


def export(loss: Loss, to: str = "python", **options: Any) -> Any:
    """Exports a loss for use without evomal.

    Args:
        loss: The loss.
        to: `python` or `jax` for the text of a file that needs only torch or JAX; `latex`; `sympy`; or `onnx`.
        options: For `onnx` only: `classes`, the number of classes if the graph is to be for that number alone (by
            default it is for any number, unless the loss has class weights or priors), and `probabilities=True` for
            targets that are class probabilities instead of class indices.

    Returns:
        Text for `python`, `jax` and `latex`, a SymPy expression for `sympy`, the bytes of a graph for `onnx`.

    Raises:
        InputError: The format or an option is unknown, or the loss has no such form.

    Example:
        >>> from evomal.losses import FocalLoss
        >>> export(FocalLoss(gamma=2.0), to="sympy")
        -(1 - p)**2*log(p)
    """
    chosen: Any = to
    if not isinstance(chosen, str) or chosen not in FORMATS:
        raise InputError(f"to must be one of {', '.join(FORMATS)} but got {short_repr(to)}")
    if not isinstance(loss, Loss):
        raise InputError(f"only evomal's own losses can be exported but got {type(loss).__name__}")
    is_program = to in ("python", "jax", "onnx")
    if isinstance(loss, PriorLoss) and loss.priors is None and is_program:
        # There is no task outside evomal that would give it priors, and without them it is plain cross-entropy.
        raise InputError(f"{loss.name} must have the priors of its classes to be exported: use with_priors")
    if isinstance(loss, ExpressionLoss) and is_program and uses_priors(loss.expression) and loss.priors is None:
        raise InputError(f"a loss with prior or blogp must have the priors of its classes to be exported to {to}")
    if isinstance(loss, ExpressionLoss) and to == "onnx" and PROGRESS in loss.expression.tokens:
        raise InputError("a loss with t cannot be exported to onnx: a graph takes no progress of the training")
    if unknown := [name for name in options if to != "onnx" or name not in _OF_ONNX]:
        raise InputError(f"{to} has no option {unknown[0]!r}")
    return FORMATS[to](loss, **options)
