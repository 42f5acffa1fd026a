"""How datasets and loaders become the parts of a task: read once into tensors, or read anew while a model trains."""

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from evomal.errors import InputError
from evomal.progress import tracked
from evomal.randomness import GlobalStates, preserved_globals
from evomal.tasks.arrays import MOST_BYTES
from evomal.tasks.building import class_weights, units_of
from evomal.tasks.data_checks import target_rows
from evomal.tasks.fitting import DatasetOptions, Fit
from evomal.tasks.inputs import tensors
from evomal.tasks.items import stacked_items
from evomal.tasks.labels import checked_classes
from evomal.tasks.loader_sources import loader_source
from evomal.tasks.model_trials import outputs_of_model, with_integers_as_taken
from evomal.tasks.parts import Batches, Part, joined_parts
from evomal.tasks.sources import MOST_UNCOUNTED, ArraySource, DatasetSource, PiecesSource, Source
from evomal.tasks.splits import shared_content
from evomal.text import short_repr, with_article

_SAMPLE_ROWS, _SAMPLE_BATCHES = 1024, 128  # at most, of a part that is not held in memory
_READ_ROWS = 64  # at a time
_TRIED_ITEMS = 16


def dataset_fields(
    datasets: Mapping[str, Any], cached: bool | None, options: DatasetOptions, model: Callable[[], nn.Module]
) -> dict[str, Any]:
    """Return the fields of a task that are made of datasets or pairs of arrays; `cached` None: decided by rule."""
    given: Any = cached
    if not isinstance(given, bool | None):
        raise InputError(f"cached must be True, False or None but got {short_repr(given)}")
    parts, reasons = [], {}
    for place, dataset in datasets.items():
        source = _dataset_source(dataset, place, options)
        reason = _reason_to_stream(source, dataset, cached=cached, is_trained=place == "training")
        if reason:
            reasons[place] = reason
            parts.append(dataclasses.replace(_sample(source), source=source))
        else:
            if isinstance(source, DatasetSource) and source.gives_batches:
                source.is_read_in_batches = _is_fixed(source)
            parts.append(_whole(source))
    return _fields(parts, reasons, options, model)


def loader_fields(
    loaders: Mapping[str, Any], options: DatasetOptions, model: Callable[[], nn.Module]
) -> tuple[int, dict[str, Any]]:
    """Return the size of the training batches, and the fields of a task that are made of loaders."""
    parts, reasons = [], {}
    for place, loader in loaders.items():
        source = loader_source(loader, place, columns=options.columns, workers=options.workers)
        source.fitted = Fit(options, place)
        part = None if place == "training" else _held(source)
        if part is None:
            reasons[place] = "a loader gives batches" if place == "training" else _too_large("more")
            part = dataclasses.replace(_sample(source), source=copy.copy(source))  # a copy has no open streams
        parts.append(part)
    first = parts[0].source
    assert first is not None
    with preserved_globals():
        first.batch_size = len(first.read(first.request(0, "sample", 0, 1)))
    return first.batch_size, _fields(parts, reasons, options, model)


def _fields(
    parts: Sequence[Part], reasons: Mapping[str, str], options: DatasetOptions, model: Callable[[], nn.Module]
) -> dict[str, Any]:
    kind, places = options.kind, ("training", "validation", "test")
    parts = with_integers_as_taken(parts, model)
    labels = target_rows(parts[0].targets, kind)
    classes = None if options.classes is None else checked_classes(options.classes)
    if kind != "classification":
        outputs = int(labels.shape[1])
    elif classes is not None:
        outputs = len(classes)
    else:
        outputs = int(labels.max()) + 1 if len(labels) else 1
        if parts[0].source is not None:  # a rare class may be missing in the sample
            outputs = max(outputs, outputs_of_model(model, parts[0]) or 1)
    units = units_of(parts[0].targets.double().numpy()) if options.standardise else None
    for place, part in zip(places, parts, strict=True):
        if part.source is not None:
            part.source.fitted = Fit(options, place).to_sample(
                part, outputs=outputs, is_varying=part.source.is_varying, units=units
            )
    if units is not None:
        parts = [dataclasses.replace(part, targets=units.standardised(part.targets)) for part in parts]
    class_weight = None
    if options.class_weight is not None:
        class_weight = class_weights(options.class_weight, labels, outputs, classes, kind)
    record: dict[str, Any] = {"rows": {place: part.rows for place, part in zip(places, parts, strict=True)}}
    if reasons:
        record["read_anew"] = dict(reasons)
    else:
        contents = ([own.numpy() for own in tensors(part.inputs)] for part in parts)
        record["equal_rows_across_splits"] = shared_content(*contents)
    record |= {} if classes is None else {"classes": list(classes)}
    return {
        **dict(zip(("train", "validation", "test"), parts, strict=True)),
        "outputs": outputs, "record": record, "classes": classes, "class_weight": class_weight, "units": units,
    }  # fmt: skip


def _dataset_source(dataset: Any, place: str, options: DatasetOptions) -> Source:
    source: Source
    if isinstance(dataset, DataLoader | IterableDataset):
        raise InputError(
            f"the {place} dataset must have a length and items by number but is "
            f"{with_article(type(dataset).__name__)}: use Task.from_loaders for batches and streams"
        )
    tables = dataset.tensors if type(dataset) is TensorDataset else dataset
    if isinstance(tables, tuple | list) and len(tables) == 2 and all(hasattr(own, "shape") for own in tables):
        x, y = tables
        source = ArraySource(x, y, place, workers=options.workers)
    else:
        source = DatasetSource(dataset, place, columns=options.columns, workers=options.workers)
    source.fitted = Fit(options, place)
    return source


def _reason_to_stream(source: Source, dataset: Any, *, cached: bool | None, is_trained: bool) -> str:
    """Return why a dataset is read again while models train; an empty text if it is read once into tensors."""
    if is_trained and cached is not None:
        return "" if cached else "cached=False was given"
    with preserved_globals():
        item = source.read(next(source.whole(1)))
    assert source.rows is not None
    size = item.bytes * source.rows
    if size > MOST_BYTES:
        return _too_large(f"{size / 2**30:,.1f} GiB, more")
    inner = dataset.dataset if isinstance(dataset, Subset) else dataset
    if not is_trained or isinstance(source, ArraySource) or type(inner) is TensorDataset:
        return ""
    assert isinstance(source, DatasetSource)
    return _drawn_anew(source)


def _drawn_anew(source: DatasetSource) -> str:
    """Return a sentence if items differ from reading to reading, else an empty text; raise if no seed decides them."""
    assert source.rows is not None
    with preserved_globals():
        for index in Batches(source.rows, _TRIED_ITEMS, seed=0, purpose="tried items")[0].tolist():
            first, second, again = (_reading(source, index, start) for start in (1, 2, 1))
            if first.content != again.content:
                raise InputError(
                    f"item {index} of the {source.place} dataset must be the same whenever it is read with the same "
                    "seed, but differs: draw from random, numpy.random, torch or a generator that is an attribute of "
                    "the dataset, or read it only once with cached=True"
                )
            # A draw may have no effect by chance, as when an image is mirrored only now and then, so the states of the
            # generators are compared, too. A dataset that seeds them itself leaves them in one state after any seed.
            states = zip(first.before, first.after, second.after, strict=True)
            if first.content != second.content or any(after not in (before, other) for before, after, other in states):
                return f"item {index} is drawn anew whenever it is read"
    return ""


def _is_fixed(source: DatasetSource) -> bool:
    """Return whether items are the same whenever they are read, and draw nothing."""
    try:
        return not _drawn_anew(source)
    except InputError:
        return False


class _Reading(NamedTuple):
    content: list[bytes]
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def _reading(source: DatasetSource, index: int, start: int) -> _Reading:
    """Return the content of an item that is read with that seed, and the random states around it."""
    source.seed(start)
    before = GlobalStates.now().contents()
    item = source.item(index, start)
    after = GlobalStates.now().contents()
    part = stacked_items([item], source.columns, [f"item {index} of the {source.place} dataset"])
    return _Reading([own.numpy().tobytes() for own in (*tensors(part.inputs), part.targets)], before, after)


def _whole(source: Source) -> Part:
    """Return all samples of a source as tensors."""
    assert source.rows is not None
    requests = list(source.whole(_READ_ROWS))
    with preserved_globals():
        name = f"reading the {source.place} data"
        found = [source.read(request) for request in tracked(requests, name, total=len(requests))]
    if len(alike := _alike(found)) != source.rows:
        raise InputError(
            f"items of the {source.place} dataset must have inputs and targets of one shape but some of them differ: "
            "use Task.from_loaders with a loader that pads them"
        )
    return source.fitted(alike)


def _held(source: Source) -> Part | None:
    """Return all batches of a loader as tensors, or as pieces of differing shape; None if they are too large.

    Raises:
        InputError: If there are no batches, or so many that they may never end.
    """
    found, size = [], 0
    with preserved_globals():
        for request in source.whole(_READ_ROWS):
            try:
                found.append(source.part(request))
            except StopIteration:
                break
            size += found[-1].bytes
            if not source.has_end and (size > MOST_BYTES or len(found) > MOST_UNCOUNTED):
                raise InputError(
                    f"the {source.place} batches must end, but there were more than {MOST_UNCOUNTED:,} of them or "
                    f"{MOST_BYTES / 2**30:g} GiB: if they do end, return an object that has a length beside its "
                    "batches, as a DataLoader or a list has; if not, take some with itertools.islice"
                )
            if size > MOST_BYTES:
                return None
    if not found:
        raise InputError(f"the {source.place} loader must give at least one batch but gave none")
    alike = _alike(found)
    if len(alike) == sum(map(len, found)):
        return alike
    return dataclasses.replace(alike, source=PiecesSource(found, source.place))


def _sample(source: Source) -> Part:
    """Return some samples, in a random order that is always the same: datasets are often sorted by class."""
    found: list[Part] = []
    rows = 0
    with preserved_globals():
        for step in range(_SAMPLE_BATCHES):
            found.append(source.part(source.request(0, "sample", step, _READ_ROWS)))
            rows += len(found[-1])
            is_epoch_over = source.rows is not None and rows + len(found[-1]) > source.rows
            if rows >= _SAMPLE_ROWS or is_epoch_over:
                break
    return _alike(found)


def _alike(parts: Sequence[Part]) -> Part:
    """Return the largest group of parts whose shapes are the same, joined into one."""
    groups = defaultdict(list)
    for part in parts:
        groups[tuple(tuple(own.shape[1:]) for own in (*tensors(part.inputs), part.targets))].append(part)
    return joined_parts(max(groups.values(), key=lambda own: sum(map(len, own))))


def _too_large(amount: str) -> str:
    return f"the data take {amount} than the {MOST_BYTES / 2**30:g} GiB up to which they are held in memory"
