"""Tagging: a label for every token, with padding that counts in no loss and no metric.

Sentences of a small grammar in which most words are ambiguous ("can" is a verb or a noun), so that a tag depends on the
neighbours. Sentences have different lengths; padded positions have the label -100, torch's own `ignore_index`. The
model returns (batch, tags, length), as `nn.CrossEntropyLoss` takes it.
"""

import numpy as np
import torch
from torch import Tensor, nn

import evomal

TAGS = ("determiner", "adjective", "noun", "verb", "adverb")
WORDS, LONGEST, IGNORED = 40, 14, -100
# The probability that a tag follows another; the first row begins a sentence.
NEXT = np.array(
    [
        [0.6, 0.1, 0.2, 0.0, 0.1],
        [0.0, 0.5, 0.5, 0.0, 0.0],
        [0.0, 0.2, 0.8, 0.0, 0.0],
        [0.1, 0.0, 0.1, 0.7, 0.1],
        [0.5, 0.1, 0.1, 0.0, 0.3],
        [0.3, 0.1, 0.1, 0.4, 0.1],
    ]
)
SEARCH = {
    "population": 12, "generations": 2, "training_steps": 60, "rungs": (1.0,), "tried_rates": 1, "final_steps": 120,
    "finalists": 2, "final_seeds": 3,
}  # fmt: skip
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 120}


class Tagger(nn.Module):
    """An embedding and two convolutions over neighbouring words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, 16)
        self.layers = nn.Sequential(nn.Conv1d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv1d(24, len(TAGS), 3, padding=1))

    def forward(self, words: Tensor) -> Tensor:
        tags: Tensor = self.layers(self.words(words).transpose(1, 2))
        return tags


def sentences(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Word numbers, 0 for padding, and the tag of each word."""
    rng = np.random.default_rng(0)
    favourite = rng.dirichlet(np.full(WORDS, 0.15), len(TAGS))  # few words per tag are frequent, and tags share words
    words, tags = np.zeros((count, LONGEST), dtype=np.int64), np.full((count, LONGEST), IGNORED)
    for row in range(count):
        tag = -1
        for place in range(rng.integers(4, LONGEST + 1)):
            tag = rng.choice(len(TAGS), p=NEXT[tag + 1])
            words[row, place] = 1 + rng.choice(WORDS, p=favourite[tag])
            tags[row, place] = tag
    return words, tags


def make_task(count: int = 900) -> evomal.Task:
    """The sentences as a task that is judged by the accuracy of its tokens."""
    words, tags = sentences(count)
    return evomal.Task.from_arrays(
        words, tags, model=Tagger, metric="accuracy", ignore_index=IGNORED, name="tagging",
        recipe=evomal.Recipe(optimizer="adamw", lr=1e-2, batch_size=32, clip=1.0),
    )  # fmt: skip


def main() -> None:
    task = make_task()
    print(task)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    loss = result.best.loss()
    outputs, tags = Tagger()(task.test.inputs), task.test.targets
    assert torch.isfinite(loss(outputs, tags))  # the loss takes the same outputs and ignored labels in any other loop
    print(evomal.compare(task, losses={"learned": loss, "focal": "focal"}, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
