"""The hand-made losses side by side on handwritten digits whose training labels are partly wrong.

The data ship with scikit-learn (1797 images of 8×8, Alpaydin and Kaynak, 1998). A quarter of the training labels is
replaced by another class; validation and test labels stay as they are. For one seed, all losses see the same initial
weights, wrong labels and batches. One learning rate is used for all: pass `tune_lr` to tune it for each.
"""

from sklearn.datasets import load_digits
from torch import nn

import evomal
from evomal.losses import named_loss

LOSSES = {
    "label smoothing 0.2": named_loss("label-smoothing", smoothing=0.2),
    "sparse label smoothing 0.2": named_loss("sparse-label-smoothing", smoothing=0.2),
    "absolute cross-entropy 1.2": named_loss("absolute-ce", phi1=1.2),
    "focal 2": named_loss("focal", gamma=2.0),
    "squared difference": evomal.ExpressionLoss("square(sub(y, f))"),
}


def digits() -> evomal.Task:
    """The digits as a task, with wrong labels in the training part."""
    images, labels = load_digits(return_X_y=True)
    return evomal.Task.from_arrays(
        images / 16,
        labels,
        model=lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
        standardise=False,
        recipe=evomal.Recipe(steps=1000, lr=0.1, nesterov=False, weight_decay=0.0),
        hardships=evomal.Hardships(label_noise=0.25),
        name="digits with wrong labels",
    )


if __name__ == "__main__":
    # One thread: the matrices are small, and a second one costs more than it brings.
    print(evomal.compare(digits(), losses=LOSSES, seeds=10, final_steps=1000, threads=1, progress=True))
