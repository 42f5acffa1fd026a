"""Regression with several outputs in raw units: where and when a ball lands, in metres and seconds.

The outputs differ in size by a factor of a hundred, so that a loss on raw numbers would see the range alone. The task
standardises them, and `task.to_raw` converts predictions back. Some of the measurements it learns from are wrong.
"""

import numpy as np
import torch
from torch import nn

import evomal

OUTPUTS = ("range (m)", "height (m)", "time (s)")
SEARCH = {"population": 16, "generations": 3, "training_steps": 200, "final_steps": 400, "finalists": 3}
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 400}


def make_task(rows: int = 1500) -> evomal.Task:
    """Throws of a ball with the range, the height and the time that were measured."""
    rng = np.random.default_rng(0)
    speed, angle, start = rng.uniform(10, 60, rows), rng.uniform(0.2, 1.3, rows), rng.uniform(0, 20, rows)
    up, g = speed * np.sin(angle), 9.81
    time = (up + np.sqrt(up**2 + 2 * g * start)) / g
    landing = np.stack((speed * np.cos(angle) * time, start + up**2 / (2 * g), time), axis=1)
    noisy = landing * rng.normal(1, 0.02, landing.shape)
    return evomal.Task.from_arrays(
        np.stack((speed, angle, start), axis=1),
        noisy,
        kind="regression",
        metric="mae",
        model=lambda: nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, len(OUTPUTS))),
        recipe=evomal.Recipe(lr=0.05, batch_size=64),
        hardships=evomal.Hardships(outliers=0.1),  # every tenth training target is far off
        name="ball",
    )


def raw_errors(task: evomal.Task, loss: nn.Module | str, lr: float | None, steps: int) -> str:
    """The mean absolute error of each output on the test part, in its own unit."""
    score = evomal.train(task, loss, lr=lr, steps=steps, keep_model=True)
    with torch.no_grad():
        predicted = task.to_raw(score.model.cpu()(task.test.inputs))
    errors = (predicted - task.to_raw(task.test.targets)).abs().mean(0)
    return ", ".join(f"{name} {error:.2f}" for name, error in zip(OUTPUTS, errors.tolist(), strict=True))


def main() -> None:
    task = make_task()
    print(task)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    best, steps = result.best, SEARCH["final_steps"]
    print(evomal.compare(task, losses={"learned": best.loss(), "huber": "huber"}, progress=True, **VERDICT))
    print("mean absolute errors on test rows, seed 0")
    print(f"  mse      {raw_errors(task, 'mse', None, steps)}")
    print(f"  learned  {raw_errors(task, best.loss(), best.lr, steps)}")


if __name__ == "__main__":
    main()
