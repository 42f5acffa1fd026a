"""Sources: the batch of a step is the same in any order, from any number of workers, and in another process."""

import functools
import os
import pickle
import random
import signal
import sys
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, default_collate

from evomal.errors import InputError, UserCodeError
from evomal.randomness import GlobalStates, preserved_globals
from evomal.tasks import prefetching
from evomal.tasks.loader_sources import IterableSource, LoaderSource, loader_source
from evomal.tasks.parts import Batches, Part
from evomal.tasks.prefetching import Stream, whole, worker_count
from evomal.tasks.sources import ArraySource, DatasetSource, PiecesSource

CPU = torch.device("cpu")


class Noisy(Dataset):
    """Items that begin with their number; the rest is drawn anew from every kind of generator."""

    def __init__(self, length: int = 10) -> None:
        self.length, self.own = length, np.random.default_rng(1)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        drawn = [torch.rand(()).item(), random.random(), np.random.rand(), self.own.random()]  # noqa: NPY002
        return torch.tensor([float(index), *drawn]), index % 2


def padded(items) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of random lengths, padded to the longest."""
    lengths = [random.randint(1, 5) for _ in items]
    rows = [x[0].repeat(length) for (x, _), length in zip(items, lengths, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([y for _, y in items])


def counted(seed: int) -> Iterator[dict[str, torch.Tensor]]:
    """Three batches of growing length, which draw from the seed and from torch."""
    own = np.random.default_rng(seed)
    for length in range(1, 4):
        yield {"x": torch.full((2, length), own.random()) + torch.rand(()), "label": torch.tensor([0, 1])}


class Keeping(IterableDataset):
    """Draws from generators of its own, of every kind."""

    def __init__(self) -> None:
        self.own = [np.random.default_rng(1), np.random.RandomState(1), random.Random(1), torch.Generator()]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        numpys, older, pythons, torchs = self.own
        for index in range(6):
            drawn = [numpys.random(), older.rand(), pythons.random(), torch.rand((), generator=torchs).item()]
            yield torch.tensor(drawn), index % 2


class Numbers(IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for index in range(5):
            yield torch.tensor([index, torch.rand(()).item()]), index % 2


def sources(workers: int) -> dict[str, object]:
    table = np.arange(30.0).reshape(10, 3)
    pieces = [Part(torch.full((2, length), 1.0), torch.tensor([0, 1])) for length in (1, 2, 3)]
    return {
        "dataset": DatasetSource(Noisy(), "training", workers=workers),
        "arrays": ArraySource(table, np.arange(10) % 2, "training", workers=workers),
        "loader": loader_source(DataLoader(Noisy(), batch_size=3, shuffle=True), "training", workers=workers),
        "collated": loader_source(DataLoader(Noisy(), 3, collate_fn=padded), "training", workers=workers),
        "function": loader_source(counted, "training", workers=workers),
        "iterable": loader_source(DataLoader(Numbers(), batch_size=2), "training", workers=workers),
        "pieces": PiecesSource(pieces, "training"),
    }


def numbers(part: Part) -> tuple[list, list]:
    return part.inputs.tolist(), part.targets.tolist()


def read(source, steps, keys=((0, "training"), (1, "training"))) -> list:
    stream = Stream(source, keys, size=4, device=CPU)
    return [[numbers(part) for part in stream.at(step)] for step in steps]


@pytest.mark.parametrize("kind", list(sources(0)))
def test_a_batch_depends_on_seed_purpose_and_step_alone(kind):
    before = GlobalStates.now()
    source = sources(0)[kind]
    in_order = read(source, range(8))
    assert read(source, range(8)) == in_order  # a second stream of the same source
    assert read(source, [6, 2, 3]) == [in_order[6], in_order[2], in_order[3]]  # resumed, and in another order
    seeds_swapped = read(source, range(8), keys=((1, "training"), (0, "training")))
    assert [pair[::-1] for pair in seeds_swapped] == in_order  # streams side by side do not affect each other
    copied = pickle.loads(pickle.dumps(source)) if kind not in ("function", "collated") else source
    assert read(copied, range(8)) == in_order
    if kind not in ("collated", "pieces"):  # an order that the user fixed, and three pieces, may agree by chance
        assert in_order[0][0] != in_order[0][1]
        assert read(source, [0], keys=((0, "other"),))[0][0] != in_order[0][0]
    assert GlobalStates.now() == before


def test_worker_processes_change_no_number():
    for kind in ("dataset", "collated", "function"):
        expected = read(sources(0)[kind], range(5))
        for workers in (1, 2):
            source = sources(workers)[kind]
            assert worker_count(source, CPU) == min(workers, source.most_workers)
            before = GlobalStates.now()
            assert read(source, range(5)) == expected
            assert read(source, [3]) == expected[3:4]  # the same processes, from another step on
            assert GlobalStates.now() == before


def test_streams_of_one_dataset_do_not_share_the_states_of_its_generators():
    steps, requests = range(5), [(0, "training"), (1, "training")]

    def batch(source, key, step):
        return source.part(source.request(*key, step, 2)).inputs

    with preserved_globals():
        *apart, source = (loader_source(DataLoader(Keeping(), 2), "training") for _ in range(3))
        alone = [[batch(own, key, step) for step in steps] for own, key in zip(apart, requests, strict=True)]
        together = [[batch(source, key, step) for key in requests] for step in steps]
    for step in steps:
        for number in range(2):
            assert torch.equal(together[step][number], alone[number][step])


def test_items_are_drawn_anew_every_epoch_in_the_order_of_data_in_memory():
    source = DatasetSource(Noisy(), "training", workers=0)
    parts = [part for (part,) in (Stream(source, [(7, "training")], size=5, device=CPU).at(step) for step in range(4))]
    rows = Batches(10, 5, seed=7, purpose="training")
    assert all(part.inputs[:, 0].tolist() == rows[step].tolist() for step, part in enumerate(parts))
    first, second = (torch.cat([part.inputs for part in half]) for half in (parts[:2], parts[2:]))
    first, second = (epoch[epoch[:, 0].argsort()] for epoch in (first, second))
    assert torch.equal(first[:, 0], second[:, 0])
    assert bool((first[:, 1:] != second[:, 1:]).all())


def test_a_whole_pass_has_every_sample_once_and_is_repeatable():
    for kind, source in sources(0).items():
        passes = [[numbers(part) for part in whole(source, size=4, device=CPU)] for _ in range(2)]
        assert passes[0] == passes[1]
        expected = {"function": 6, "iterable": 5, "pieces": 6}.get(kind, 10)
        assert sum(len(targets) for _, targets in passes[0]) == expected
    items = [
        x for part in whole(DatasetSource(Noisy(), "test"), size=4, device=CPU) for x in part.inputs[:, 0].tolist()
    ]
    assert items == list(range(10))


def test_loaders_keep_their_batches():
    source = loader_source(DataLoader(Noisy(), batch_size=4, shuffle=False), "training")
    assert next(batch[0][0][0] for batch in read(source, range(6), keys=((0, "t"),)))[0] == 0.0
    assert [len(batch[0][1]) for batch in read(source, range(6), keys=((0, "t"),))] == [4, 4, 2, 4, 4, 2]
    assert source.is_varying
    assert not loader_source(DataLoader(Noisy(), batch_size=5), "training").is_varying
    assert not loader_source(DataLoader(Noisy(), batch_size=4, drop_last=True), "training").is_varying
    assert loader_source(DataLoader(Noisy(), batch_size=5, collate_fn=padded), "training").is_varying
    assert isinstance(source, LoaderSource)
    assert loader_source(counted, "training").is_varying
    buckets = DataLoader(Noisy(), batch_sampler=[[0, 1, 2], [3]])
    assert [len(batch[0][1]) for batch in read(loader_source(buckets, "t"), range(3), keys=((0, "t"),))] == [3, 1, 3]
    unbatched = DataLoader([(torch.zeros(3, 1), torch.zeros(3)), (torch.zeros(2, 1), torch.zeros(2))], batch_size=None)
    assert [len(batch[0][1]) for batch in read(loader_source(unbatched, "t"), range(3), keys=((0, "t"),))] == [3, 2, 3]


class OfLists(Noisy):
    """Takes several numbers at once, as a list, and gives their batch."""

    def __getitem__(self, index):
        assert isinstance(index, list)
        return default_collate([super(OfLists, self).__getitem__(one) for one in index])


def test_a_sampler_of_batches_gives_the_dataset_lists():
    loader = DataLoader(OfLists(), batch_size=None, sampler=BatchSampler(range(10), 4, drop_last=False))
    assert [len(batch[0][1]) for batch in read(loader_source(loader, "t"), range(4), keys=((0, "t"),))] == [4, 4, 2, 4]


class Seen(Noisy):
    """Remembers the types of the indices that it is given."""

    types: ClassVar[set[type]] = set()

    def __getitem__(self, index):
        self.types.add(type(index))
        return super().__getitem__(index % 10)


@pytest.mark.parametrize("size", [50, None])
def test_orders_of_epochs_take_little_memory(size):
    rows = 5000
    source = LoaderSource(DataLoader(Seen(rows), batch_size=size, shuffle=size is not None), "training")
    epoch = source._epoch(0, "training", 0)
    kept = sum(map(sys.getsizeof, epoch)) if size else sys.getsizeof(epoch)
    assert 8 * rows <= kept <= 12 * rows  # a list of numbers takes 40 bytes for each
    if size:
        with preserved_globals():
            assert len(source.read(source.request(0, "training", 3, size))) == size
        assert Seen.types == {int}


def test_indices_that_are_no_numbers_are_kept_as_they_are():
    batches = [[("a", 1), ("b", 2)], [("c", 3)]]

    class Named(Noisy):
        def __getitem__(self, index):
            return torch.tensor([float(index[1])]), index[1] % 2

    source = LoaderSource(DataLoader(Named(3), batch_sampler=batches), "training")
    with preserved_globals():
        assert [source.read(request).inputs.flatten().tolist() for request in source.whole(1)] == [[1.0, 2.0], [3.0]]


def test_a_loader_that_reads_ahead_by_itself_is_not_read_by_a_worker():
    source = loader_source(DataLoader(Numbers(), batch_size=2, num_workers=1), "training")
    assert isinstance(source, IterableSource)
    assert worker_count(source, torch.device("cuda")) == 0
    assert read(source, range(4)) == read(source, range(4))
    assert read(source, [0], keys=((0, "t"),)) != read(source, [0], keys=((1, "t"),))
    one = loader_source(lambda seed: iter(()), "training", workers=5)
    assert worker_count(one, CPU) == 1


def test_memory_mapped_arrays_are_sent_by_their_file(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).normal(size=(4_000, 8)).astype(np.float32))
    mapped, y = np.load(path, mmap_mode="r"), np.arange(4_000) % 2
    source = ArraySource(mapped, y, "training")
    content = pickle.dumps(source)
    assert len(content) < 100_000 < mapped.nbytes
    assert read(pickle.loads(content), range(2)) == read(source, range(2))
    first = next(whole(source, size=3, device=CPU))
    assert np.array_equal(first.inputs.numpy(), mapped[:3])
    assert first.targets.tolist() == [0, 1, 0]
    half = ArraySource(mapped[2_000:], y[2_000:], "training")  # a view's place in the file is not known
    assert read(pickle.loads(pickle.dumps(half)), [0]) == read(half, [0])


def test_errors_are_one_sentence_from_workers_too():
    class Broken(Noisy):
        def __getitem__(self, index):
            raise KeyError("no such file")

    for workers in (0, 1):
        with pytest.raises(UserCodeError, match=r"item \d of the training dataset failed: KeyError: 'no such file'"):
            read(DatasetSource(Broken(), "training", workers=workers), [0])
    with pytest.raises(InputError, match="the training batches must not be empty, but epoch 0 has none"):
        read(loader_source(lambda seed: [], "training"), [0])
    with pytest.raises(InputError, match="the validation loader must be a torch DataLoader, or a function"):
        loader_source([1, 2], "validation")
    with pytest.raises(InputError, match="the training dataset must have a length of at least 1"):
        DatasetSource([], "training")
    with pytest.raises(InputError, match="a target for each input but got 3 and 2"):
        ArraySource(np.zeros((3, 1)), np.zeros(2), "training")


def test_batches_are_kept_while_there_is_room(monkeypatch):
    calls = []

    class Counted(Noisy):
        def __getitem__(self, index):
            calls.append(index)
            return super().__getitem__(index)

    monkeypatch.setattr(prefetching, "_KEPT_BYTES", 3 * 4 * (5 * 4 + 8))  # three batches of four items
    source = DatasetSource(Counted(), "training")
    one, other = (Stream(source, [(seed, "t")], size=4, device=CPU) for seed in (0, 1))
    first = [numbers(part) for step in range(4) for part in one.at(step)]
    assert len(calls) == 16
    assert [numbers(part) for step in range(4) for part in one.at(step)] == first
    assert len(calls) == 16 + 4  # the fourth had no room
    other.at(0)
    assert len(calls) == 24
    assert numbers(other.at(0)[0]) != first[0]
    one.at(0)
    assert len(calls) == 28  # another stream took the room


def test_workers_do_not_hear_an_interruption():
    started = []
    loader = DataLoader(Noisy(), batch_size=4, num_workers=1, worker_init_fn=started.append)
    source = loader_source(loader, "training")
    expected = read(loader_source(loader, "training", workers=0), range(12))
    stream = Stream(source, [(0, "training"), (1, "training")], size=4, device=CPU)
    found = []
    for step in range(12):
        found.append([numbers(part) for part in stream.at(step)])
        (process,) = source.reader._loader._iterator._workers
        os.kill(process.pid, signal.SIGINT)
    assert found == expected
    assert started == []  # it is called in the process of the worker


def test_batches_of_workers_that_are_kept_hold_no_files():
    source = DatasetSource(Noisy(), "training", workers=1)
    stream = Stream(source, [(0, "training")], size=4, device=CPU)
    stream.at(0)
    before = len(os.listdir("/proc/self/fd"))
    kept = [stream.at(step) for step in range(1, 30)]
    assert len(os.listdir("/proc/self/fd")) < before + 10
    assert len(kept) == 29


def test_workers_end_with_their_source():
    source = DatasetSource(Noisy(), "training", workers=1)
    read(source, [0])
    (process,) = source.reader._loader._iterator._workers
    assert process.is_alive()
    del source
    process.join(5)
    assert not process.is_alive()


def test_a_dataset_is_never_read_with_the_callers_random_state():
    source = DatasetSource(Noisy(), "training")
    with preserved_globals():
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        read(source, [0])
        assert torch.equal(torch.rand(3), expected)


def test_seeds_of_items_do_not_depend_on_the_batch():
    source = DatasetSource(Noisy(), "training")
    small, large = (
        functools.reduce(
            lambda found, step: found + Stream(source, [(0, "t")], size=size, device=CPU).at(step)[0].inputs.tolist(),
            range(10 // size),
            [],
        )
        for size in (2, 5)
    )
    assert small == large
