"""Loss files: every kind survives the round trip, and nothing else is ever more than an error."""

import json
import os
import pickle
import random
import subprocess
import sys
import time

import pytest
import torch

from evomal.errors import InputError
from evomal.expression import ramped_half_and_half
from evomal.losses import (
    CATALOGUE,
    AbsoluteCrossEntropyLoss,
    ExpressionLoss,
    FocalSparseLabelSmoothingLoss,
    HuberLoss,
    LabelSmoothingLoss,
    Loss,
    NeuralLoss,
    SparseLabelSmoothingLoss,
    TaylorLoss,
    load_loss,
    named_loss,
    save_loss,
    starting_layers,
)
from evomal.losses.files import MAX_BYTES
from evomal.randomness import generator

EVERY_KIND = {
    "expression": lambda: ExpressionLoss("abs(log(mul(y, f)))", [1.1, 0.9, 1.0, 1 / 3]),
    "plain expression": lambda: ExpressionLoss("square(sub(y, f))", kind="regression", activation="softplus"),
    "taylor": lambda: TaylorLoss([0.1, -0.2, 0.3, 1 / 3, 1e-20, 5, 6, 7], kind="multilabel"),
    "neural": lambda: NeuralLoss(starting_layers(hidden=7, generator=torch.Generator().manual_seed(0))),
    "absolute": lambda: AbsoluteCrossEntropyLoss(0.7, 1.3, weight=[1.0, 2.0, 0.1]),
    "sparse": lambda: SparseLabelSmoothingLoss(0.2, simplified=True, ignore_index=1, reduction="sum"),
    "smoothed": lambda: LabelSmoothingLoss(0.3, kind="multilabel"),
    "focal sparse": lambda: FocalSparseLabelSmoothingLoss(1.5, 0.2),
    "huber": lambda: HuberLoss(0.5, reduction="none"),
    **{f"named {name}": lambda name=name: named_loss(name) for name in CATALOGUE},
}


def example(loss: Loss):
    rng = torch.Generator().manual_seed(3)
    if loss.kind == "regression":
        return torch.randn(5, generator=rng), torch.randn(5, generator=rng)
    if loss.kind == "multilabel":
        return torch.randn(5, 3, generator=rng), torch.randint(2, (5, 3), generator=rng)
    return torch.randn(5, 3, generator=rng), torch.randint(3, (5,), generator=rng)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_round_trip(name, tmp_path):
    loss, path = EVERY_KIND[name](), tmp_path / "loss.json"
    save_loss(loss, path, provenance={"task": "diabetes", "seed": 3, "fitness": 0.25, "note": None})
    again = load_loss(path)
    assert type(again) is type(loss)
    output, target = example(loss)
    assert torch.equal(again(output, target), loss(output, target))
    assert again.provenance["task"] == "diabetes"
    assert again.provenance["versions"]["torch"] == torch.__version__
    assert (again.reduction, again.ignore_index, again.kind) == (loss.reduction, loss.ignore_index, loss.kind)
    save_loss(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_the_format_is_the_one_promised(tmp_path):
    save_loss(ExpressionLoss("mul(y, f)", [0.5, 2.0]), tmp_path / "loss.json", provenance={"method": "evomal"})
    document = json.loads((tmp_path / "loss.json").read_text())
    versions = document["provenance"].pop("versions")
    assert set(versions) == {"evomal", "torch"}
    assert document == {
        "format": "evomal-loss",
        "version": 1,
        "kind": "expression",
        "task": "classification",
        "expression": "mul(y, f)",
        "weights": [0.5, 2.0],
        "options": {"activation": "identity", "ignore_index": -100, "reduction": "mean"},
        "provenance": {"method": "evomal"},
    }


def test_a_minimal_file_written_by_hand(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(
        """{"format": "evomal-loss", "version": 1, "kind": "expression",
            "task": "regression", "expression": "abs(sub(y, f))"}"""
    )
    assert load_loss(path)(torch.tensor([1.0]), torch.tensor([3.0])) == 2


GOOD = {"format": "evomal-loss", "version": 1, "kind": "expression", "task": "regression", "expression": "mul(y, f)"}
NAMED = {"format": "evomal-loss", "version": 1, "kind": "named", "task": "classification", "name": "focal"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({**GOOD, "expression": "mul(y, g)"}, "unknown token 'g' at character 8"),
        ({**GOOD, "expression": "mul(y)"}, "mul takes 2 arguments but got 1 at character 1"),
        ({**GOOD, "expression": "abs(y)"}, "a loss must use both y and f, but abs(y) does not use f"),
        ({**GOOD, "expression": "mul(y, f) f"}, "'f' follows it at character 11"),
        ({**GOOD, "expression": "abs(" * 20_000}, "may be at most 64 levels high, exceeded at character 257"),
        ({**GOOD, "expression": "(" * 100_000}, "expected an operator or a terminal at character 1"),
        ({**GOOD, "expression": "(" * 100_001}, "expression must have at most 100000 characters but has 100001"),
        ({**GOOD, "expression": 3}, "expression must be a string but got 3"),
        ({**GOOD, "weights": [1.0]}, "needs 2 weights, one per non-root node, but got 1"),
        ({**GOOD, "weights": [1.0] * 8_000}, "needs 2 weights, one per non-root node, but got 8000"),
        ({**GOOD, "weights": [1.0] * 250_000}, "weights must have at most 8191 entries but has 250000"),
        ({**GOOD, "weights": [1.0, float("nan")]}, "weights.1 must be a finite number but got NaN"),
        ({**GOOD, "weights": [1.0, "1"]}, 'weights.1 must be a number but got "1"'),
        ({**GOOD, "weights": [1.0, True]}, "weights.1 must be a number but got true"),
        ({**GOOD, "weights": {"0": 1}}, 'weights must be a list but got {"0": 1}'),
        ({**GOOD, "version": 2}, "is of version 2, but this evomal reads version 1: update evomal"),
        ({**GOOD, "version": "1"}, 'version must be a whole number of at least 1 but got "1"'),
        ({**GOOD, "version": 0}, "version must be a whole number of at least 1 but got 0"),
        ({**GOOD, "format": "loss"}, 'it must be a JSON object with "format": "evomal-loss"'),
        ([GOOD], 'it must be a JSON object with "format": "evomal-loss"'),
        ({**GOOD, "kind": "code"}, 'kind must be one of expression, taylor, neural, named but got "code"'),
        ({**GOOD, "task": "ranking"}, 'task must be one of classification, regression, multilabel but got "ranking"'),
        ({**GOOD, "extra": 1}, "there is no entry named 'extra': known names are format, version"),
        ({**GOOD, "options": {"reduction": "average"}}, "options.reduction must be one of none, mean, sum but got"),
        ({**GOOD, "options": {"activation": "relu"}}, "options.activation must be one of identity, softplus but got"),
        ({**GOOD, "options": {"weight": [1.0]}}, "weight must be None for a regression loss, as it is per class"),
        ({**GOOD, "provenance": {"a": [1]}}, "provenance: each entry must be a short text or a finite number"),
        ({**GOOD, "provenance": {"a": "x" * 2000}}, "provenance: each entry must be a short text or a finite number"),
        ({**GOOD, "provenance": {"a": {"x" * 2000: 1}}}, "provenance: each name must be a string of at most"),
        ({**NAMED, "name": "focla"}, "there is no loss named 'focla': did you mean 'focal'?"),
        ({**NAMED, "name": "os.system"}, "there is no loss named 'os.system': known names are ce,"),
        ({**NAMED, "options": {"gamma": -1}}, "gamma must be a finite number of at least 0 but got -1"),
        ({**NAMED, "options": {"alpha": 1}}, "focal has no option 'alpha': its options are gamma,"),
        ({**NAMED, "options": {"gamma": "x"}}, 'options.gamma must be a number but got "x"'),
        ({**NAMED, "task": "regression"}, "kind must be one of classification, multilabel but got 'regression'"),
        ({**GOOD, "kind": "taylor", "theta": [1.0] * 8}, "there is no entry named 'expression'"),
        (b"", "is not a JSON file: Expecting value at line 1, column 1"),
        (b"{", "is not a JSON file"),
        (b"\xff\xfe\x00", "is not a JSON text file: byte 0 is not UTF-8"),
        ({**NAMED, "options": {"kind": 1}}, "focal has no option 'kind'"),
        ({**NAMED, "options": {"name": 1}}, "focal has no option 'name'"),
        ({**NAMED, "options": {"gamma": 10**400}}, "gamma must be between -2^63 and 2^63"),
        (
            {**NAMED, "name": "sparse-label-smoothing", "options": {"simplified": 0.5}},
            "simplified must be true or false",
        ),
        ({**GOOD, "provenance": {"seed": 10**400}}, "provenance: each entry must be a short text or a finite number"),
        ({**GOOD, "version": 10**400}, "but this evomal reads version 1"),
        (
            json.dumps({**GOOD, "provenance": {"a": 0}}).replace("0}", "[" * 900 + "]" * 900 + "}").encode(),
            "provenance",
        ),
        (b"{" + b",".join(b'"%d":0' % k for k in range(200_000)) + b',"0":0}', '"0" occurs twice in one object'),
        (pickle.dumps(GOOD), "is not a JSON text file: byte 0 is not UTF-8"),
        (pickle.dumps(GOOD, protocol=0), "is not a JSON file: Expecting value at line 1, column 1"),
        (b"[" * 100_000, "its brackets are nested too deeply"),
        (b'{"a":' * 100_000, "its brackets are nested too deeply"),
        (b"1" * 100_000, "is not a loss file"),
        (b" " * (MAX_BYTES + 1), f"must have at most {MAX_BYTES:,} bytes but has more"),
        (b'{"format": "evomal-loss", "format": "evomal-loss"}', '"format" occurs twice in one object'),
    ],
)
def test_bad_files_give_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        load_loss(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))
    assert time.process_time() - began < 60


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="must be a regular file but is a folder"):
        load_loss(tmp_path)
    with pytest.raises(InputError, match="there is no such file"):
        load_loss(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        load_loss(tmp_path / ("x" * 300))
    with pytest.raises(InputError, match="null"):
        save_loss(named_loss("ce"), str(tmp_path / "x\0y"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="must be a regular file but is a pipe"):
        save_loss(named_loss("ce"), tmp_path / "pipe")
    with pytest.raises(InputError, match="must be a regular file but is a pipe"):
        load_loss(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a folder, but the name of a file was expected"):
        save_loss(named_loss("ce"), tmp_path)
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        save_loss(named_loss("ce"), tmp_path / "nowhere" / "loss.json")


def _turned_bad() -> Loss:
    loss = ExpressionLoss("mul(y, f)", torch.tensor([1.0, 2.0]))
    loss.weights[1] = torch.nan
    return loss


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (torch.nn.CrossEntropyLoss(), "only evomal's own losses can be saved but got CrossEntropyLoss"),
        (_turned_bad(), "cannot be saved as JSON"),
    ],
)
def test_what_cannot_be_saved_leaves_the_old_file(loss, sentence, tmp_path):
    path = tmp_path / "loss.json"
    save_loss(named_loss("ce"), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=sentence):
        save_loss(loss, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["loss.json"]


def corpus(tmp_path) -> list[bytes]:
    files = []
    rng = generator(0, "corpus")
    makers = list(EVERY_KIND.values())
    for tree in ramped_half_and_half(10, generator=rng):
        makers.append(lambda tree=tree: ExpressionLoss(tree, rng.normal(1, 1, tree.edges).tolist()))
    for make in makers:
        save_loss(make(), tmp_path / "seed.json", provenance={"task": "mnist", "seed": 1})
        files.append((tmp_path / "seed.json").read_bytes())
    return files


def mutated(files: list[bytes], rng: random.Random) -> bytes:
    content = bytearray(rng.choice(files))
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(content)) if content else 0
        match rng.randrange(6):
            case 0:
                del content[place:]
            case 1 if content:
                content[place] ^= 1 << rng.randrange(8)
            case 2:
                other = rng.choice(files)
                cut = rng.randrange(len(other))
                content[place:] = other[cut:]
            case 3:
                content[place : place + rng.randint(1, 30)] = b""
            case 4:
                snippets = [b"NaN", b"-1e999", b"null", b"[[", b'"', b"\\u0000", b"99999999999999999999", b"abs(", b"}"]
                content[place:place] = rng.choice(snippets)
            case _:
                piece = content[place : place + rng.randint(1, 60)]
                content[place:place] = piece * rng.randint(1, 20)
    return bytes(content)


@pytest.mark.parametrize(
    ("count", "seed"), [(5_000, 0), pytest.param(200_000, 1, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_mutated_files(tmp_path, count, seed):
    """Each loads to a loss that computes, or gives the one error; survivors show that the mutations are not trivial."""
    rng = random.Random(seed)
    files, path = corpus(tmp_path), tmp_path / "mutant.json"
    loaded, refusals = 0, []
    for _ in range(count):
        path.write_bytes(mutated(files, rng))
        try:
            loss = load_loss(path)
        except InputError as error:
            refusals.append(str(error))
            continue
        loaded += 1
        output, target = example(loss)
        if loss.weight is None:
            assert isinstance(loss(output, target), torch.Tensor)
    assert all(refusal.startswith(f"{path}: ") and "\n" not in refusal for refusal in refusals)
    assert loaded > 100
    assert len(refusals) > 1_000


WATCHED = ("import", "exec", "compile", "open", "os", "subprocess", "socket", "pickle", "marshal", "ctypes")
AUDIT = """
import sys
import evomal
evomal.load_loss, evomal.InputError  # public names are imported when they are first used
events, allowed = [], {paths!r}
def hook(event, arguments):
    if event == "open" and str(arguments[0]) in allowed:
        return
    if event.split(".")[0] in {watched!r}:
        events.append((event, str(arguments)[:200]))
sys.addaudithook(hook)
for path in allowed:
    try:
        print(type(evomal.load_loss(path)).__name__)
    except evomal.InputError as error:
        print("refused")
found = list(events)
assert not found, found
exec("1")
assert len(events) > len(found), "the hook sees nothing"
"""


def test_loading_runs_no_code_and_imports_nothing(tmp_path):
    names, paths = ["expression", "taylor", "neural", "sparse"], []
    for name in names:
        paths.append(tmp_path / f"{name}.json")
        save_loss(EVERY_KIND[name](), paths[-1])
    paths.append(tmp_path / "hostile.json")
    paths[-1].write_text(json.dumps({**GOOD, "expression": "__import__('os').system('true')"}))
    code = AUDIT.format(paths=[*map(str, paths)], watched=WATCHED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*(type(EVERY_KIND[name]()).__name__ for name in names), "refused"]
