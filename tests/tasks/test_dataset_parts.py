"""Datasets and loaders as parts: what is read once, what is read anew, and what a training makes of it."""

import importlib.util
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

from evomal.engine.full_training import train
from evomal.errors import InputError
from evomal.randomness import GlobalStates
from evomal.tasks import dataset_parts, loader_sources
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

RECIPE = Recipe(lr=0.05, batch_size=8)
X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
PLAIN = TensorDataset(X, Y)
PIECES = DataLoader(PLAIN, batch_size=16)


class Changed(Dataset):
    """Samples with a transform."""

    def __init__(self, transform=lambda x: x, length: int = len(X)) -> None:
        self.transform, self.length, self.calls = transform, length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        self.calls += 1
        return self.transform(X[index]), int(Y[index])


def net() -> nn.Module:
    return nn.Linear(3, 2)


def task_of(dataset, **options) -> Task:
    return Task.from_datasets(dataset, PLAIN, PLAIN, model=net, recipe=RECIPE, **options)


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.randn(3)


def test_a_random_transform_is_drawn_anew_in_every_epoch():
    dataset = Changed(noisy)
    before = GlobalStates.now()
    task = task_of(dataset)
    assert GlobalStates.now() == before
    assert task.record["read_anew"]["training"].endswith("is drawn anew whenever it is read")
    assert "rows=40 (read anew) + 40 + 40" in repr(task)
    dataset.calls = 0
    score = train(task, "ce", steps=15, device="cpu")
    assert dataset.calls >= 15 * 8
    assert score == train(task, "ce", steps=15, device="cpu")
    assert score != train(task_of(dataset, cached=True), "ce", steps=15, device="cpu")
    assert GlobalStates.now() == before


@pytest.mark.parametrize("transform", [noisy, lambda x: x * random.random(), lambda x: x + np.random.rand()])  # noqa: NPY002
def test_every_global_generator_is_seen(transform):
    assert task_of(Changed(transform)).train.source is not None


def test_rare_changes_are_seen_by_what_they_draw():
    rare = Changed(lambda x: -x if torch.rand(()) < 1e-6 else x)
    assert task_of(rare).train.source is not None

    def synthetic(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(int(x.sum() * 1000))
        return torch.randn(3)

    assert task_of(Changed(synthetic)).train.source is None  # it draws the same whenever it is read


def test_what_does_not_change_is_read_once():
    for dataset in (PLAIN, Subset(PLAIN, range(20)), Changed(), Changed(lambda x: x * 2)):
        task = task_of(dataset)
        assert task.train.source is None
        assert "read_anew" not in task.record
    dataset = Changed()
    task = task_of(dataset)
    dataset.calls = 0
    train(task, "ce", steps=10, device="cpu")
    assert dataset.calls == 0


def test_cached_overrules_the_rule():
    assert task_of(Changed(noisy), cached=True).train.source is None
    streamed = task_of(PLAIN, cached=False)
    assert streamed.record["read_anew"] == {"training": "cached=False was given"}
    scores = [train(task, "ce", steps=12, device="cpu") for task in (task_of(PLAIN), streamed)]
    assert scores[0] == scores[1]
    with pytest.raises(InputError, match="cached must be True, False or None but got 'no'"):
        task_of(PLAIN, cached="no")


def test_draws_that_no_seed_decides_are_refused():
    counter = iter(range(10_000))
    with pytest.raises(InputError, match="must be the same whenever it is read with the same seed, but differs: draw"):
        task_of(Changed(lambda x: x + next(counter)))


def test_validation_and_test_are_read_once_as_they_are():
    dataset = Changed(noisy)
    task = Task.from_datasets(PLAIN, dataset, dataset, model=net)
    assert dataset.calls <= 2 * 40 + 4
    assert task.validation.source is None
    assert not torch.equal(task.validation.inputs, X)
    again = Task.from_datasets(PLAIN, dataset, dataset, model=net)
    assert torch.equal(task.validation.inputs, again.validation.inputs)


def test_arrays_that_are_too_large_are_read_from_the_disk(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r"), Y.numpy()
    in_memory = Task.from_datasets(mapped, mapped, mapped, model=net, recipe=RECIPE)
    assert in_memory.train.source is None
    monkeypatch.setattr(dataset_parts, "MOST_BYTES", 100)
    from_disk = Task.from_datasets(mapped, mapped, mapped, model=net, recipe=RECIPE)
    assert "more than the 9.31323e-08 GiB up to which" in from_disk.record["read_anew"]["training"]
    assert from_disk.test.source is not None
    scores = [train(task, "ce", steps=12, device="cpu") for task in (in_memory, from_disk)]
    assert scores[0] == scores[1]


def test_bytes_become_floats_on_the_device():
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 3, 3), dtype=np.uint8)
    options = {"model": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 2)), "recipe": RECIPE}
    data = images, Y.numpy()
    in_memory = Task.from_datasets(data, data, data, **options)
    streamed = Task.from_datasets(data, data, data, cached=False, **options)
    assert streamed.train.inputs.dtype == torch.float32
    source = streamed.train.source
    assert source.part(source.request(0, "t", 0, 8)).inputs.dtype == torch.uint8
    scores = [train(task, "ce", steps=5, lr=1e-5, device="cpu") for task in (in_memory, streamed)]
    assert scores[0] == scores[1]


def test_the_sample_of_a_loader_is_large_enough():
    task = Task.from_loaders(DataLoader(PLAIN, batch_size=4, shuffle=True), PIECES, PIECES, model=net)
    assert len(task.train) == 40
    assert torch.equal(task.train.inputs.sort(0).values, X.sort(0).values)


class LikeHuggingFace:
    """A map-style dataset of columns, as `datasets.Dataset` is: no subclass of torch's, items are dictionaries."""

    def __init__(self, rows: int) -> None:
        own = np.random.default_rng(0)
        self.rows = [
            {"text": "…", "input_ids": own.integers(0, 9, 4).tolist(), "attention_mask": [1, 1, 1, 0], "label": row % 2}
            for row in range(rows)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index] if isinstance(index, int) else {"label": [row["label"] for row in self.rows[index]]}


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1).to(self.head.weight.dtype)
        return self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))


def of_hugging_face(rows: int):
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("needs the library datasets of Hugging Face")
    return importlib.import_module("datasets").Dataset.from_list(LikeHuggingFace(rows).rows)


@pytest.mark.parametrize("make", [LikeHuggingFace, of_hugging_face])
def test_columns_of_hugging_face_datasets(make):
    dataset = make(24)
    options = {"inputs": ["input_ids", "attention_mask"], "model": Bag, "recipe": RECIPE}
    task = Task.from_datasets(dataset, dataset, dataset, **options)
    assert {name: str(own.dtype) for name, own in task.train.inputs.items()} == {
        "input_ids": "torch.int64",
        "attention_mask": "torch.int64",
    }
    streamed = Task.from_datasets(dataset, dataset, dataset, cached=False, **options)
    scores = [train(own, "ce", steps=4, device="cpu") for own in (task, streamed)]
    assert scores[0] == scores[1]
    with pytest.raises(InputError, match=r"the input of item 0 of the training dataset, text, must hold numbers"):
        Task.from_datasets(dataset, dataset, dataset, model=Bag)


class Together(Changed):
    """A dataset that gives several items at once, as those of Hugging Face do."""

    batches = 0

    def __getitems__(self, indices):
        self.batches += 1
        items = [super(Together, self).__getitem__(index) for index in indices]
        return items if self.batches <= 2 else items[1:]


def test_several_items_are_read_at_once_if_they_draw_nothing():
    plain, together, random_one = Changed(), Together(), Together(noisy)
    task, expected = (Task.from_datasets(own, own, random_one, model=net) for own in (together, plain))
    assert (together.batches, random_one.batches) == (2, 0)
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(task, name).inputs, getattr(expected, name).inputs)
    with pytest.raises(InputError, match="__getitems__ of the training dataset must return an item for each of 40 num"):
        task_of(together)


class Words(Dataset):
    """Sequences of several lengths; the class is whether the first word is large."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        own = np.random.default_rng(index)
        words = own.integers(1, 9, own.integers(2, 20))
        return torch.from_numpy(words), int(words[0] > 4)


def padded(items) -> dict[str, torch.Tensor]:
    words = nn.utils.rnn.pad_sequence([words for words, _ in items], batch_first=True)
    return {"input_ids": words, "attention_mask": words > 0, "label": torch.tensor([label for _, label in items])}


def loader(**options) -> DataLoader:
    return DataLoader(Words(), batch_size=8, collate_fn=padded, **options)


def test_loaders_whose_batches_vary_in_length():
    before = GlobalStates.now()
    task = Task.from_loaders(loader(shuffle=True), loader(), loader(), model=Bag, recipe=Recipe(lr=0.1))
    assert task.recipe.batch_size == 8
    assert task.train.source.is_varying
    assert task.outputs == 2
    assert sum(len(part) for part in task.validation.source._pieces) == 40
    assert "rows=40 (read anew) + 40 + 40" in repr(task)
    first, second = (train(task, "ce", steps=30, device="cpu") for _ in range(2))
    assert first == second
    assert first.validation < 0.5
    assert GlobalStates.now() == before
    with pytest.raises(InputError, match="batch_size must be 8, as the training loader makes the batches, but got 4"):
        train(task, "ce", steps=2, batch_size=4, device="cpu")


def test_batches_that_fit_together_are_held_as_one_tensor():
    batches = DataLoader(PLAIN, batch_size=16)
    task = Task.from_loaders(DataLoader(PLAIN, batch_size=10, shuffle=True), batches, batches, model=net)
    assert task.validation.source is None
    assert torch.equal(task.validation.inputs, X)
    assert not task.train.source.is_varying
    assert task.record["rows"] == {"training": 40, "validation": 40, "test": 40}


def test_a_function_from_a_seed_to_batches():
    def stream(seed: int):
        own = torch.Generator().manual_seed(seed)
        for _ in range(5):
            x = torch.randn(6, 3, generator=own)
            yield x, (x[:, 0] > 0).long(), torch.ones(6)

    task = Task.from_loaders(stream, stream, stream, model=net, recipe=Recipe(lr=0.5))
    assert task.train.rows is None
    assert "rows=? (read anew) + 30 + 30" in repr(task)
    assert task.train.weights is not None
    assert train(task, "ce", steps=60, device="cpu").validation <= 0.1


def test_streams_without_an_end_are_for_training_only(monkeypatch):
    def endless(seed: int):
        while True:
            yield X, Y

    class Counted(list):
        """Batches that say how many they are."""

    def ending(seed: int):
        return Counted([(X[:8], Y[:8])] * 12)

    monkeypatch.setattr(dataset_parts, "MOST_UNCOUNTED", 10)
    assert Task.from_loaders(endless, PIECES, PIECES, model=net).train.rows is None
    sentence = r"the test batches must end, but there were more than 10 of them or 4 GiB: if they do end, return an obj"
    for stream in (endless, lambda seed: iter(ending(seed))):
        with pytest.raises(InputError, match=sentence):
            Task.from_loaders(endless, PIECES, stream, model=net)
    assert len(Task.from_loaders(endless, ending, ending, model=net).validation) == 96
    monkeypatch.setattr(dataset_parts, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="the test batches must end"):
        Task.from_loaders(endless, PIECES, endless, model=net)
    assert Task.from_loaders(endless, ending, ending, model=net).record["read_anew"].keys() == {
        "training",
        "validation",
        "test",
    }


class Endless(Sampler):
    """Rows for ever, as for trainings that count steps."""

    def __iter__(self):
        while True:
            yield from range(len(X))


def test_a_sampler_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(loader_sources, "MOST_UNCOUNTED", 10)
    with pytest.raises(InputError, match="the sampler of the training loader must end, but gave more than 40 batches"):
        Task.from_loaders(DataLoader(PLAIN, batch_size=8, sampler=Endless()), PIECES, PIECES, model=net)


def test_classes_of_data_that_are_read_anew():
    assert task_of(Changed(noisy)).outputs == 2
    wide = Task.from_datasets(Changed(noisy), PLAIN, PLAIN, model=lambda: nn.Linear(3, 5))
    assert wide.outputs == 5  # a class may be missing in the sample, and the model knows
    named = task_of(Changed(noisy), classes=["no", "yes"], class_weight={"no": 1.0, "yes": 2.0})
    assert named.classes == ("no", "yes")
    assert named.class_weight == (1.0, 2.0)


def test_targets_of_regression_are_standardised_on_demand():
    values = 1000 + 50 * X[:, :2]
    data = TensorDataset(X, values)
    options = {"kind": "regression", "model": lambda: nn.Linear(3, 2), "recipe": RECIPE}
    plain = Task.from_datasets(data, data, data, **options)
    assert torch.equal(plain.train.targets, values)
    task, anew = (
        Task.from_datasets(data, data, data, cached=cached, standardise=True, **options) for cached in (True, False)
    )
    torch.testing.assert_close(task.train.targets.std(0, correction=0), torch.ones(2))
    torch.testing.assert_close(task.to_raw(task.test.targets), values)
    scores = [train(own, "mse", steps=20, device="cpu") for own in (task, anew)]
    assert scores[0] == scores[1]
    assert scores[0].validation < 1
    pieces = DataLoader(data, batch_size=16)
    read = Task.from_loaders(DataLoader(data, batch_size=8), pieces, pieces, standardise=True, **options)
    torch.testing.assert_close(read.units.mean, task.units.mean)
    assert train(read, "mse", steps=20, device="cpu").validation < 1


def test_a_later_batch_that_does_not_fit_is_one_sentence():
    late = Changed(lambda x: x + torch.rand(()), length=40)
    task = task_of(late)
    late.transform = lambda x: torch.cat((x, x))
    with pytest.raises(InputError, match=r"must have inputs of one shape but gave \[3\] and \[6\]: use Task.from_load"):
        train(task, "ce", steps=2, device="cpu")
    late.transform = lambda x: x / 0
    with pytest.raises(InputError, match="the inputs of a batch of the training dataset must be finite"):
        train(task, "ce", steps=2, device="cpu")


def test_loaders_and_streams_are_not_taken_for_datasets():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(X[0], 1)])

    for stream in (PIECES, Stream()):
        with pytest.raises(InputError, match=r"must have a length and items by number but is a .*: use Task.from_load"):
            task_of(stream)
    with pytest.raises(InputError, match="the training loader must be a torch DataLoader, or a function from a seed"):
        Task.from_loaders(PLAIN, PIECES, PIECES, model=net)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": -1}, "workers must be at least 0 but got -1"),
        ({"inputs": 3}, "inputs must be the name of a column, or a list of names, but got 3"),
        ({"target": 3}, "target must be the name of a column but got 3"),
        ({"ignore_index": "pad"}, "ignore_index must be a whole number but got 'pad'"),
        ({"ignore_index": 2**63}, "ignore_index must be at most 9223372036854775807 but got 9223372036854775808"),
        ({"standardise": 1}, "standardise must be True or False but got 1"),
        ({"standardise": True}, "standardise is for the targets of regression, but the kind is classification: the in"),
        ({"ignore_index": 0, "kind": "multilabel"}, "ignore_index is for classification, but the kind is multilabel"),
    ],
)
def test_options_that_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        task_of(PLAIN, **options)


class Masks(Dataset):
    """Images with a class for each pixel in bytes, and a border that does not count; mirrored at random if asked."""

    def __init__(self, *, is_mirrored: bool) -> None:
        self.is_mirrored = is_mirrored

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int):
        image = torch.linspace(-1, 1, 16, dtype=torch.float32).roll(index).view(1, 4, 4)
        mask = (image[0] > 0).to(torch.uint8)
        mask[0] = 255
        is_flipped = self.is_mirrored and torch.rand(()) < 0.5
        return (image.flip(-1), mask.flip(-1)) if is_flipped else (image, mask)


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("made_of", ["datasets", "loaders"])
def test_the_ignored_label_of_masks_of_bytes(made_of, is_mirrored):
    parts = [Masks(is_mirrored=is_mirrored), Masks(is_mirrored=False), Masks(is_mirrored=False)]
    options = {"model": lambda: nn.Conv2d(1, 2, 1), "ignore_index": 255}
    if made_of == "datasets":
        task = Task.from_datasets(*parts, recipe=RECIPE, **options)
    else:
        task = Task.from_loaders(*(DataLoader(part, batch_size=4) for part in parts), **options)
    assert task.outputs == 2
    assert task.train.targets.unique().tolist() == [-100, 0, 1]
    assert not train(task, "ce", steps=6, device="cpu").diverged
