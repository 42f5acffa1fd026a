"""Loss cards, reports on runs and comparisons, and the display in notebooks."""

from evomal.figures.loss_shape import draw_loss
from evomal.figures.style import figure_style, new_figure, save_figure
from evomal.report.card import Card, loss_card

__all__ = ["Card", "draw_loss", "figure_style", "loss_card", "new_figure", "save_figure"]
