"""Losses for use without evomal: Python over torch or JAX, ONNX, LaTeX, SymPy."""

from evomal.losses.exporting.formats import FORMATS, export

__all__ = ["FORMATS", "export"]
