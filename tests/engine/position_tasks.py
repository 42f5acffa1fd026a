"""Small tasks whose inputs or targets are not one row of numbers each, and their training by torch alone."""

import copy

import numpy as np
import torch
from torch import nn

from evomal.engine.resolve import initial_model
from evomal.engine.rows import without_row_outputs
from evomal.tasks.inputs import called
from evomal.tasks.parts import Batches
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

TOKENS, TAGS, LENGTH, PADDING = 11, 3, 5, 0
RECIPE = Recipe(steps=12, lr=0.1, batch_size=8)


class Tagger(nn.Module):
    """A tag for each token, from the token and its neighbours."""

    def __init__(self, *, classes_last=True):
        super().__init__()
        self.embedding, self.mixing = nn.Embedding(TOKENS, 6), nn.Linear(6, 6)
        self.head, self.classes_last = nn.Linear(6, TAGS), classes_last

    def forward(self, ids):
        x = self.embedding(ids)
        outputs = self.head(torch.tanh(self.mixing(x + x.roll(1, 1))))
        return outputs if self.classes_last else outputs.movedim(-1, 1)


class Reader(nn.Module):
    """A class for each sequence: the mean over the tokens that are no padding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, 6), nn.Linear(6, 2)

    def forward(self, ids, mask):
        weights = mask.to(self.head.weight.dtype).unsqueeze(-1)
        return self.head((self.embedding(ids) * weights).sum(1) / weights.sum(1).clamp(min=1))


class Transformer(nn.Module):
    """A tag for each token, by attention to the tokens that are no padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.embedding, self.encoder = nn.Embedding(TOKENS, 8), nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(8, TAGS)

    def forward(self, ids, mask):
        return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=~mask))


def sentences(samples=60, seed=0):
    """Token numbers `(samples, LENGTH)`, padded behind their end, the mask of real tokens, and a tag for each token."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, TOKENS, size=(samples, LENGTH))
    mask = np.arange(LENGTH) < rng.integers(2, LENGTH + 1, size=(samples, 1))
    ids = np.where(mask, ids, PADDING)
    return ids, mask, np.where(mask, (ids + np.roll(ids, 1, axis=1)) % TAGS, -100)


def tagging(*, classes_last=True, recipe=RECIPE, **options):
    ids, _, tags = sentences()
    return Task.from_arrays(ids, tags, model=lambda: Tagger(classes_last=classes_last), recipe=recipe, **options)


def attentive_tagging(*, recipe=RECIPE, **options):
    ids, mask, tags = sentences()
    return Task.from_arrays({"ids": ids, "mask": mask}, tags, model=Transformer, recipe=recipe, **options)


def reading(*, recipe=RECIPE, **options):
    """Inputs that are a dictionary of token numbers and a padding mask."""
    ids, mask, _ = sentences()
    inputs = {"ids": ids, "mask": mask}
    return Task.from_arrays(inputs, (ids.sum(1) > 18).astype(int), model=Reader, recipe=recipe, **options)


def images(samples=40, side=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 1, side, side)).astype(np.float32)


def segmentation(*, samples=40, recipe=RECIPE, **options):
    x = images(samples)
    y = (x[:, 0] > 0.3).astype(int) + (x[:, 0] > 1)
    return Task.from_arrays(x, y, model=lambda: nn.Conv2d(1, 3, 3, padding=1), recipe=recipe, **options)


def image_regression(*, recipe=RECIPE, **options):
    x = images()
    model = lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 1))  # noqa: E731
    return Task.from_arrays(x, np.sin(x), model=model, kind="regression", recipe=recipe, **options)


def one_logit(*, recipe=RECIPE, **options):
    """Masks of two classes by one logit for each pixel."""
    x = images()
    y = (x[:, 0] > 0.3).astype(int)
    return Task.from_arrays(x, y, model=lambda: nn.Conv2d(1, 1, 3, padding=1), recipe=recipe, **options)


def labels_of_pixels(*, recipe=RECIPE, **options):
    """Two labels for each pixel, of which any may be present."""
    x = images()
    y = np.concatenate((x > 0.3, x < 1), axis=1).astype(int)
    model = lambda: nn.Conv2d(1, 2, 3, padding=1)  # noqa: E731
    return Task.from_arrays(x, y, model=model, kind="multilabel", recipe=recipe, **options)


def two_inputs(*, recipe=RECIPE, **options):
    """Inputs that are a tuple: an image and a row of a table."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(36 + 2, 2)

        def forward(self, image, table):
            return self.head(torch.cat((image.flatten(1), table), 1))

    rng, x = np.random.default_rng(1), images()
    table = rng.normal(size=(len(x), 2))
    y = (x.mean((1, 2, 3)) + table[:, 0] > 0).astype(int)
    return Task.from_arrays((x, table), y, model=Both, recipe=recipe, **options)


ALL = {
    "tags, classes last": tagging,
    "tags, classes first": lambda **options: tagging(classes_last=False, **options),
    "dictionary with a mask": reading,
    "tuple": two_inputs,
    "segmentation": segmentation,
    "image regression": image_regression,
}


def trained_by_torch(task, loss, *, seed, steps=RECIPE.steps):
    """The model of the seed after SGD on the task's batches; `loss` takes the outputs and the batch."""
    model, recipe = copy.deepcopy(without_row_outputs(initial_model(task, seed))).train(), task.recipe
    optimizer = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov
    )
    batches = Batches(len(task.train), recipe.batch_size, seed=seed, purpose="training")
    for step in range(steps):
        batch = task.train.select(batches[step])
        optimizer.zero_grad()
        loss(called(model, batch.inputs), batch).backward()
        optimizer.step()
    return model.eval()
