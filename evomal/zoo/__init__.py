"""The zoo: learned losses that come with evomal, loaded by `evomal.load_loss("zoo:NAME")`.

A loss earns its place by a lead over the best tuned known loss, on unseen seeds, in at least two tasks. Each is a loss
file `NAME.json` with a card `NAME.md` in this folder; the card says what was measured, with its campaign, and what was
not.
"""

from evomal.zoo.entries import is_zoo_name, zoo_card, zoo_file, zoo_names

__all__ = ["is_zoo_name", "zoo_card", "zoo_file", "zoo_names"]
