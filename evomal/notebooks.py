"""What notebooks display as HTML."""

import importlib


class Displayed:
    """A class whose objects notebooks display as HTML, which `evomal.report.notebook` makes."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        try:
            # Imported by name and only now: drawing needs matplotlib, and is above everything that can be displayed.
            notebook = importlib.import_module("evomal.report.notebook")
            html: str = notebook.html_of(self)
            return html
        except Exception:  # The notebook then shows the plain text: a display must never cost anyone a result.
            return None
