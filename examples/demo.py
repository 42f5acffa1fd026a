"""The product in two honest minutes: search for a loss, then ask whether it is worth using.

Twice: on a task that has a gain to find (a quarter of the training targets are far off) and on one where none has
been found (the Diabetes data). Each search is followed by the verdict of `evomal.compare` on the learned loss and on
the best known one: seeds that the search has not seen, the learning rate tuned for every loss, the test split at the
end. Whatever comes out is printed, also "no gain". Run by `make demo`.
"""

import sys
import tempfile
import time
from pathlib import Path

import planted

import evomal

# Short, so that both tasks take a minute or two on two cores.
SEARCH = {"generations": 4, "finalists": 4, "final_steps": 500}
VERDICT = {"seeds": 5, "tune_lr": 5, "rescale": False, "final_steps": 500}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="evomal-"))
    begin = time.perf_counter()
    show("Outliers in the training targets", planted.outliers(), folder / "outliers")
    show("Diabetes", evomal.load_task("diabetes", model="mlp:hidden=64"), folder / "diabetes")
    print(f"{time.perf_counter() - begin:.0f} s in all; records and losses are in {folder}")


def show(title: str, task: evomal.Task, folder: Path) -> None:
    """One search and its verdict, printed."""
    print(f"{title}\n{'=' * len(title)}")
    result = evomal.search(task, seed=0, folder=folder, progress=True, **SEARCH)
    print(result)
    if result.best is not None and result.final is not None:
        learned, (known, _) = result.best.loss(), result.final.best_rival
        print(evomal.compare(task, losses={"learned": learned, known: known}, progress=True, **VERDICT))
    print()


if __name__ == "__main__":
    main()
