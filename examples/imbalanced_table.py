"""An imbalanced table from a CSV file: text labels, class weights, and the area under the ROC curve as the metric.

One payment in twenty-five is fraud. The classes are texts, the losses weigh both classes alike, and everything is
judged by how well the model ranks fraud above the rest.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import evomal

COLUMNS = ("amount", "hour", "distance", "payments_today", "account_age")
SEARCH = {"population": 16, "generations": 3, "training_steps": 200, "final_steps": 400, "finalists": 3}
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 400}


def write_payments(path: Path, rows: int) -> None:
    """Make a file such as a payment system would export."""
    rng = np.random.default_rng(0)
    fraud = rng.random(rows) < 0.04
    amount = rng.lognormal(3, 1, rows) * np.where(fraud, rng.choice((0.1, 5.0), rows), 1)
    hour = np.where(fraud & (rng.random(rows) < 0.6), rng.normal(3, 2, rows) % 24, rng.normal(14, 4, rows) % 24)
    distance = rng.exponential(np.where(fraud, 60, 20))
    today = rng.poisson(np.where(fraud, 3, 1.5))
    age = rng.exponential(np.where(fraud, 300, 900))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*COLUMNS, "label"))
        labels = np.where(fraud, "fraud", "ok")
        writer.writerows(zip(amount, hour, distance, today, age, labels, strict=True))


def read_task(path: Path) -> evomal.Task:
    """The task of a file whose last column holds the label."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    features = np.array([[float(value) for value in row[:-1]] for row in rows])
    return evomal.Task.from_arrays(
        features,
        [row[-1] for row in rows],
        classes=("ok", "fraud"),
        class_weight="balanced",
        metric="auroc",
        model=lambda: nn.Sequential(nn.Linear(len(header) - 1, 32), nn.ReLU(), nn.Linear(32, 2)),
        recipe=evomal.Recipe(lr=0.1, batch_size=64),
        name="payments",
    )


def make_task(rows: int = 4000) -> evomal.Task:
    """Write the file, and read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "payments.csv"
        write_payments(path, rows)
        return read_task(path)


def main() -> None:
    task = make_task()
    print(task)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    losses = {"learned": result.best.loss(), "focal": "focal"}
    print(evomal.compare(task, losses=losses, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
