"""Many expressions that are evaluated and differentiated together.

The kernels for the CPU are compiled by processes that do not need torch: names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from evomal.extras import lazy_names

if TYPE_CHECKING:
    from evomal.forest.codes import Link
    from evomal.forest.forest import Forest
    from evomal.forest.programs import FILLER, Programs
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "evomal.forest.codes": "Link",
            "evomal.forest.forest": "Forest",
            "evomal.forest.programs": "FILLER Programs",
        },
    )

__all__ = ["FILLER", "Forest", "Link", "Programs"]
