"""Figures: each file makes its data and draws it; this package has what a figure of your own needs."""

from evomal.figures.style import figure_style, new_figure, save_figure

__all__ = ["figure_style", "new_figure", "save_figure"]
