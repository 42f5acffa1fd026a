"""Objects that notebooks display as HTML."""

import subprocess
import sys

from evomal.extras import Displayed


class _Unknown(Displayed):
    pass


def test_what_has_no_display_is_shown_as_plain_text():
    assert _Unknown()._repr_html_() is None


def test_a_loss_imported_by_itself_has_its_display():
    code = "from evomal.losses import HuberLoss; print('<svg' in HuberLoss()._repr_html_())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
