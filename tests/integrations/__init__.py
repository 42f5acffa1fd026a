"""Tests against other libraries: `make test-integrations` installs all; elsewhere, a missing one skips its tests."""

import contextlib
import importlib
import importlib.util
import os
from typing import Any

import pytest
import torch


def library(name: str) -> Any:
    """The library, or a skipped module of tests; where all libraries are to be there, an error."""
    _make_torchvision_importable()
    if "EVOMAL_INTEGRATIONS" in os.environ:
        return importlib.import_module(name)
    return pytest.importorskip(name)


def _make_torchvision_importable() -> None:
    """Declare operators that torchvision describes when imported, but lacks beside a torch that was built otherwise.

    PyPI has torchvision for CUDA only; timm and Transformers import it, though nothing here uses its operators.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    with contextlib.suppress(RuntimeError):
        importlib.import_module("torchvision")
        return
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
