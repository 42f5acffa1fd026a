"""Figures drawn from the data of an analysis, cards, reports."""

from evomal.report.card import Card, loss_card
from evomal.report.loss_plot import draw_loss
from evomal.report.style import figure_style, new_figure, save_figure

__all__ = ["Card", "draw_loss", "figure_style", "loss_card", "new_figure", "save_figure"]
