"""Text classification with a small transformer and a padding mask: which library a sentence of documentation is from.

The sentences are the first lines of docstrings of numpy, scipy, scikit-learn and torch: real text that needs no
download. A sample is a dictionary of token numbers and of a mask of the padding; the model is called with both, and
token numbers stay whole numbers. Trained as transformers are: AdamW, warm-up, cosine, clipping.
"""

import collections
import importlib
import inspect
import re

import numpy as np
import torch
from torch import Tensor, nn

import evomal

LIBRARIES = {
    "numpy": ("numpy", "numpy.linalg", "numpy.random", "numpy.fft", "numpy.ma", "numpy.polynomial.chebyshev"),
    "scipy": ("scipy.special", "scipy.stats", "scipy.linalg", "scipy.signal", "scipy.ndimage", "scipy.optimize"),
    "sklearn": (
        "sklearn.metrics",
        "sklearn.preprocessing",
        "sklearn.datasets",
        "sklearn.linear_model",
        "sklearn.utils",
    ),
    "torch": ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.distributions", "torch.utils.data"),
}
LONGEST, WORDS, WIDTH = 12, 600, 24
SEARCH = {
    "population": 8, "generations": 2, "training_steps": 40, "rungs": (1.0,), "tried_rates": 1, "final_steps": 80,
    "finalists": 2, "final_seeds": 3, "first_trees": 1000,
}  # fmt: skip
VERDICT = {"seeds": 5, "tune_lr": 3, "rescale": False, "final_steps": 80}


class Transformer(nn.Module):
    """One encoder layer; the sentence is the mean of its words, without the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, len(LIBRARIES))

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        words = self.layer(self.words(tokens) + self.places, src_key_padding_mask=padding)
        counted = (~padding).unsqueeze(-1).to(words.dtype)
        logits: Tensor = self.head((words * counted).sum(1) / counted.sum(1))
        return logits


def sentences() -> dict[str, list[list[str]]]:
    """The words of every sentence by library, without the name of any library."""
    found: dict[str, set[str]] = {library: set() for library in LIBRARIES}
    for library, modules in LIBRARIES.items():
        for module in map(importlib.import_module, modules):
            for name in sorted(vars(module)):
                text = inspect.getdoc(getattr(module, name)) or ""
                found[library].update(line for line in text.split("\n")[:3] if len(line.split()) >= 4)
    names = {*LIBRARIES, "scikit"}
    return {
        library: [[word for word in re.findall("[a-z]+", line.lower()) if word not in names] for line in sorted(lines)]
        for library, lines in found.items()
    }


def make_task(most: int = 500) -> evomal.Task:
    """Up to `most` sentences of each library as a task."""
    rng, texts, labels = np.random.default_rng(0), [], []
    for library, lines in sentences().items():
        kept = [lines[index] for index in rng.permutation(len(lines))[:most] if lines[index]]
        texts, labels = texts + kept, labels + [library] * len(kept)
    common = collections.Counter(word for text in texts for word in text).most_common(WORDS - 2)
    numbers = {word: number for number, (word, _) in enumerate(common, start=2)}
    tokens = np.zeros((len(texts), LONGEST), dtype=np.int64)  # 0 is padding, 1 a rare word
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = [numbers.get(word, 1) for word in text[:LONGEST]]
    return evomal.Task.from_arrays(
        {"tokens": tokens, "padding": tokens == 0}, labels, model=Transformer, name="docstrings",
        recipe=evomal.Recipe(optimizer="adamw", lr=2e-2, schedule="cosine", warmup=0.1, clip=1.0, batch_size=32),
    )  # fmt: skip


def main() -> None:
    task = make_task()
    print(task, task.classes)
    result = evomal.search(task, seed=0, progress=True, **SEARCH)
    print(result)
    losses = {"learned": result.best.loss(), "label smoothing": "label-smoothing"}
    print(evomal.compare(task, losses=losses, progress=True, **VERDICT))


if __name__ == "__main__":
    main()
