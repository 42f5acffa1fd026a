"""Loss functions learned from data, after EvoMAL (Raymond, Chen, Xue and Zhang, TPAMI 2023)."""

from typing import TYPE_CHECKING

import evomal.reproducible  # noqa: F401  # before torch multiplies its first matrices
from evomal.lazy_names import lazy_names

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

__version__ = "0.2.0.dev0"  # the build reads it here; metadata of a source tree may be of an earlier one

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

_MODULES = {
    "Comparison": "evomal.verdict.comparison",
    "CurvePoint": "evomal.engine",
    "EvomalError": "evomal.errors",
    "Expression": "evomal.expression",
    "ExpressionLoss": "evomal.losses",
    "Hardships": "evomal.tasks",
    "InputError": "evomal.errors",
    "Metric": "evomal.tasks",
    "Recipe": "evomal.tasks",
    "Run": "evomal.runs.recorded_run",
    "Score": "evomal.engine",
    "SearchCallback": "evomal.runs.callbacks",
    "SearchResult": "evomal.runs.results",
    "SearchSettings": "evomal.settings",
    "Task": "evomal.tasks",
    "Units": "evomal.units",
    "compare": "evomal.verdict.comparing",
    "export": "evomal.losses.exporting",
    "headroom": "evomal.runs.measuring",
    "load_loss": "evomal.losses",
    "load_run": "evomal.runs.reading",
    "load_task": "evomal.tasks",
    "losses": "evomal.losses",
    "metrics": "evomal.tasks",
    "plot": "evomal.figures.plot",
    "save_loss": "evomal.losses",
    "search": "evomal.runs.run_loop",
    "train": "evomal.engine",
    "transfer": "evomal.verdict.comparing",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)

    def __dir__() -> list[str]:
        return __all__
