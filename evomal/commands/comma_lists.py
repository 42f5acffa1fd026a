"""Options that are lists: names, losses or numbers, separated by commas."""

from evomal.errors import InputError
from evomal.tasks import Task
from evomal.verdict.contestants import STRONG


def listed_losses(names: str, task: Task) -> list[str]:
    """The losses; `strong` stands for the usual rivals, and options of a loss, `a:x=1,y=2`, stay with it."""
    found: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        if "=" in name and ":" not in name and found and ":" in found[-1]:
            found[-1] += f",{name}"
        else:
            found += STRONG[task.kind] if name == "strong" else [name] if name else []
    return found


def listed_rates(text: str) -> list[float]:
    """The learning rates."""
    try:
        return [float(rate) for rate in text.split(",")]
    except ValueError:
        raise InputError(f"rates must be numbers, comma-separated, but got {text!r}") from None
