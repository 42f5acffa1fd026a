"""Loss functions learned from data, after EvoMAL (Raymond, Chen, Xue and Zhang, TPAMI 2023)."""

from importlib.metadata import version as _version

from evomal import losses
from evomal.engine import CurvePoint, Score, train
from evomal.errors import EvomalError, InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, load_loss, save_loss
from evomal.losses.exporting import export
from evomal.report import notebook as _notebook  # noqa: F401  (by which losses and results show themselves there)
from evomal.runs.results import SearchResult
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks import Hardships, Metric, Recipe, Task, load_task
from evomal.units import Units
from evomal.verdict.comparing import compare, transfer
from evomal.verdict.comparison import Comparison

__version__ = _version("evomal")

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
    "Score",
    "SearchResult",
    "SearchSettings",
    "Task",
    "Units",
    "__version__",
    "compare",
    "export",
    "load_loss",
    "load_task",
    "losses",
    "save_loss",
    "search",
    "train",
    "transfer",
]
