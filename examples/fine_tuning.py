"""Fine-tuning: a backbone that was trained on other classes, a fresh head, and few labels.

The backbone learns the digits 0 to 4 in this file, and is then fine-tuned on 5 to 9 with 60 labelled images. The
factory returns the same backbone weights every time, in a fresh model: starts differ by the head and by the order of
the data. The backbone's learning rate is a tenth of the head's, which a function for the optimizer says.
"""

import copy
import functools

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import evomal

SEARCH = {"population": 16, "generations": 3, "training_steps": 100, "final_steps": 200, "finalists": 3}
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 200}


def pretrained(images: torch.Tensor, labels: torch.Tensor, steps: int) -> nn.Module:
    """A backbone trained to tell the first five digits apart."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        model = nn.Sequential(backbone, nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(images), (64,), generator=generator)
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return backbone


def with_head(backbone: nn.Module) -> nn.Module:
    """A fresh model: its own copy of the backbone, and a new head."""
    return nn.Sequential(copy.deepcopy(backbone), nn.Linear(32, 5))


def groups_of_rates(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW with a tenth of the learning rate for the backbone."""
    backbone, head = model
    return torch.optim.AdamW([{"params": head.parameters()}, {"params": backbone.parameters(), "lr": 5e-3}], lr=5e-2)


def make_task(steps: int = 500, labelled: int = 60) -> evomal.Task:
    """The digits 5 to 9, a few of which have labels to train on."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.from_numpy(images / 16).float(), torch.from_numpy(labels)
    known = labels < 5
    backbone = pretrained(images[known], labels[known], steps)
    x, y = images[~known].numpy(), (labels[~known] - 5).numpy()
    order = np.random.default_rng(0).permutation(len(x))
    train, validation, test = np.split(order, (labelled, (len(x) + labelled) // 2))
    return evomal.Task.from_arrays(
        train=(x[train], y[train]),
        validation=(x[validation], y[validation]),
        test=(x[test], y[test]),
        model=functools.partial(with_head, backbone),
        standardise=False,
        recipe=evomal.Recipe(optimizer=groups_of_rates, lr=5e-2, schedule="cosine", warmup=0.1, batch_size=32),
        name="digits 5 to 9",
    )


def main() -> None:
    task = make_task()
    print(task)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    losses = {"learned": result.best.loss(), "label smoothing": "label-smoothing"}
    print(evomal.compare(task, losses=losses, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
