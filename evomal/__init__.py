"""Loss functions learned from data, after EvoMAL (Raymond, Chen, Xue and Zhang, TPAMI 2023)."""

from typing import TYPE_CHECKING

import evomal.reproducible  # noqa: F401  # before torch multiplies its first matrices
from evomal.extras import lazy_names

if TYPE_CHECKING:
    from evomal import losses
    from evomal.engine import CurvePoint, Score, train
    from evomal.errors import EvomalError, InputError
    from evomal.expression import Expression
    from evomal.figures import plot
    from evomal.losses import ExpressionLoss, load_loss, save_loss
    from evomal.losses.exporting import export
    from evomal.runs.callbacks import SearchCallback
    from evomal.runs.measuring import headroom
    from evomal.runs.reading import load_run
    from evomal.runs.recorded_run import Run
    from evomal.runs.results import SearchResult
    from evomal.runs.run_loop import search
    from evomal.settings import SearchSettings
    from evomal.tasks import Hardships, Metric, Recipe, Task, load_task, metrics
    from evomal.units import Units
    from evomal.verdict.comparing import compare, transfer
    from evomal.verdict.comparison import Comparison

__version__ = "0.2.0.dev0"  # read by the build; installed metadata may be older than a source tree

__all__ = [
    "Comparison",
    "CurvePoint",
    "EvomalError",
    "Expression",
    "ExpressionLoss",
    "Hardships",
    "InputError",
    "Metric",
    "Recipe",
    "Run",
    "Score",
    "SearchCallback",
    "SearchResult",
    "SearchSettings",
    "Task",
    "Units",
    "__version__",
    "compare",
    "export",
    "headroom",
    "load_loss",
    "load_run",
    "load_task",
    "losses",
    "metrics",
    "plot",
    "save_loss",
    "search",
    "train",
    "transfer",
]

_NAMES = {
    "evomal.engine": "CurvePoint Score train",
    "evomal.errors": "EvomalError InputError",
    "evomal.expression": "Expression",
    "evomal.figures.plot": "plot",
    "evomal.losses": "ExpressionLoss load_loss losses save_loss",
    "evomal.losses.exporting": "export",
    "evomal.runs.callbacks": "SearchCallback",
    "evomal.runs.measuring": "headroom",
    "evomal.runs.reading": "load_run",
    "evomal.runs.recorded_run": "Run",
    "evomal.runs.results": "SearchResult",
    "evomal.runs.run_loop": "search",
    "evomal.settings": "SearchSettings",
    "evomal.tasks": "Hardships Metric Recipe Task load_task metrics",
    "evomal.units": "Units",
    "evomal.verdict.comparing": "compare transfer",
    "evomal.verdict.comparison": "Comparison",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _NAMES)

    def __dir__() -> list[str]:
        return __all__
