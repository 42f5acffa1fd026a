"""Figures: each file makes its data and draws it."""
