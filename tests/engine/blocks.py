"""Costs without each block of rows, computed from the costs of single rows."""

import numpy as np


def left_out(costs, blocks):
    """The mean cost of each seed without each block of rows; `costs`: one row of the array per seed."""
    costs = np.asarray(costs)
    place = np.arange(costs.shape[1]) % blocks
    return [[float(row[place != block].mean()) for block in range(blocks)] for row in costs]
