"""Sparklines: a curve the size of a word, drawn by hand."""

from collections.abc import Iterator, Sequence

import numpy as np

from evomal.analysis.line_scans import FloatArray
from evomal.report.harmless import in_html

_WIDTH, _HEIGHT, _MARGIN = 120.0, 36.0, 3.0
_FAR_OUT = 4.0  # times the span of all but the outermost values
_OPACITIES = (1.0, 0.6, 0.35)


def sparkline(positions: FloatArray, curves: Sequence[FloatArray], description: str) -> str:
    """An SVG element; the curves share a scale, and leave it where a few values would flatten all others."""
    low, high = _limits(curves)
    lines = "".join(
        f'<polyline points="{points}" fill="none" stroke="var(--blue, #0072b2)" stroke-width="1.6" '
        f'stroke-linejoin="round" vector-effect="non-scaling-stroke" opacity="{_OPACITIES[number % 3]:g}"/>'
        for number, values in enumerate(curves)
        for points in _pieces(positions, values, low, high)
    )
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    return f'<svg role="img" aria-label="{in_html(description)}" {box}>{lines}</svg>'


def _limits(curves: Sequence[FloatArray]) -> tuple[float, float]:
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves]) if curves else np.zeros(0)
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(edge) for edge in np.quantile(values, (0.05, 0.95)))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _pieces(positions: FloatArray, values: FloatArray, low: float, high: float) -> Iterator[str]:
    """Points of the parts that are finite, each part at its height or at the edge it lies beyond."""
    x = _MARGIN + (positions - positions[0]) / (positions[-1] - positions[0]) * (_WIDTH - 2 * _MARGIN)
    is_known = np.isfinite(values)
    heights = (np.clip(np.where(is_known, values, low), low, high) - low) / (high - low)
    y = _HEIGHT - _MARGIN - heights * (_HEIGHT - 2 * _MARGIN)
    points: list[str] = []
    for known, across, down in zip(is_known, x, y, strict=True):
        if known:
            points.append(f"{across:.1f},{down:.1f}")
        elif points:
            yield " ".join(points)
            points = []
    if points:
        yield " ".join(points)
