"""Losses for places without evomal: Python over torch or JAX, ONNX, LaTeX, SymPy."""

from evomal.losses.exporting.targets import FORMATS, export

__all__ = ["FORMATS", "export"]
