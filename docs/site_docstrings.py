"""The docstrings' `Example:` for Griffe, which knows `Examples:` and would take the code for quoted text otherwise."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with every object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
