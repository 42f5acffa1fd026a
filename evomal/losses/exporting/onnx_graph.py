"""A loss as an ONNX graph from (output, target) to the loss."""

import contextlib
import copy
import importlib.util
import logging
import warnings
from collections.abc import Iterator

import torch

from evomal.errors import InputError
from evomal.losses.contract import Loss


def to_onnx(loss: Loss, classes: int | None = None, probabilities: bool = False) -> bytes:
    """The serialised graph, of any batch size.

    Classification takes logits `(N, classes)` and class indices `(N,)`, or with `probabilities` targets
    `(N, classes)`; multilabel takes targets between 0 and 1 of that shape, regression values `(N,)`, or
    `(N, D)` where D outputs have units of their own. The number of classes is part of the graph.
    """
    for needed in ("onnx", "onnxscript"):
        if importlib.util.find_spec(needed) is None:
            raise InputError(f"export to onnx needs {needed}, which is not installed: pip install 'evomal[onnx]'")
    if classes is None:
        classes = 10 if loss.weight is None else len(loss.weight)
    if classes < 2:
        raise InputError(f"classes must be at least 2 but got {classes}")
    if loss.weight is not None and len(loss.weight) != classes:
        raise InputError(
            f"classes must be {len(loss.weight)}, as many as the loss has class weights, but got {classes}"
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
    batch = torch.export.Dim("batch", min=1)
    with _quiet_exporter():
        program = torch.onnx.export(
            copy.deepcopy(loss).eval(),
            example,
            dynamo=True,
            dynamic_shapes=({0: batch}, {0: batch}),
            input_names=["output", "target"],
            output_names=["loss"],
            verbose=False,
        )
    if program is None:
        raise InputError("the ONNX exporter returned no graph")
    return bytes(program.model_proto.SerializeToString())


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """The exporter reports on its own internals and on packages it could use; none of it concerns a loss."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
