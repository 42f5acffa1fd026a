"""A campaign that takes a second: two tasks, two methods."""

TINY = """
title = "A tiny campaign"
presets = ["paper"]
methods = ["taylorglo", "evomal"]
losses = ["huber"]
seeds = 2
tune_lr = 2
[settings]
device = "cpu"
population = 5
generations = 2
meta_steps = 2
training_steps = 5
filter_steps = 5
finalists = 2
final_seeds = 2
[evaluation]
final_steps = 10
[[tasks]]
name = "clean"
task = "diabetes"
model = "mlp:hidden=4"
[[tasks]]
name = "outliers"
title = "Diabetes with outliers"
task = "diabetes"
model = "mlp:hidden=4"
outliers = 0.3
methods = ["taylorglo"]
search_seeds = 2
learned_on = ["clean"]
rescale = false
"""


def without_times(value):
    """The content of `campaign.json` without the times of its cells."""
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if key != "seconds"}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value
