"""Settings: the paper's values, presets, rules with a sentence each, files, texts, and a way there and back."""

import copy
import json
import pickle
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evomal.engine.plans import EngineSettings, PopulationMode
from evomal.engine.precision import Precision
from evomal.errors import InputError
from evomal.expression.prefix import MAX_HEIGHT, MAX_SIZE
from evomal.forest.programs import ACTIVATIONS
from evomal.methods import FILTERS
from evomal.settings import PAPER_FILTERS, PRESETS, Filter, SearchSettings, describe

PAPER = {
    "population": 25, "generations": 50, "tournament": 4, "crossover": 0.7, "mutation": 0.25, "elitism": 0.05,
    "max_height": 10, "initial_height": (2, 4), "parsimony": 0.0, "meta_steps": 250, "meta_lr": 1e-3, "inner_steps": 1,
    "space": ("paper",),
    "training_steps": 500, "optimizer": None, "schedule": None, "warmup": None, "clip": None, "lr": None,
    "momentum": None, "nesterov": None, "weight_decay": None,
    "batch_size": None, "filter_steps": 1000, "filter_samples": 100,
    "filters": ("symbolic", "dead", "rejection", "gradient"), "activation": "identity", "metric": None,
    "across_tasks": None, "seed_with": (),
    "finalists": 0, "final_seeds": 3, "final_steps": None, "milestones": None, "device": "auto", "precision": "float32",
    "channels_last": False, "population_mode": "auto",
    "chunk": None, "threads": None, "executor": "local", "max_time": None, "max_evaluations": None, "patience": None,
    "deterministic": False, "address": None, "workers": None, "gpus_per_worker": None, "worker_timeout": None,
    "retries": 2, "islands": 1, "first_trees": None, "surplus": 1.0, "migration": 5, "max_age": 10, "tried_rates": 0,
    "scaled_to": "baseline", "rungs": (1.0,), "rung_seeds": (1,), "rung_share": 0.33, "tuned_rung": 1, "resplit": False,
    "final_share": 0.0,
}  # fmt: skip
QUICK = PAPER | {
    "population": 32, "generations": 8, "islands": 4, "first_trees": 4000, "surplus": 6.0, "meta_steps": 100,
    "training_steps": 500, "tried_rates": 5, "scaled_to": "best", "rungs": (0.2, 1.0), "rung_seeds": (1, 2),
    "tuned_rung": None, "resplit": True, "filters": ("symbolic", "admissible", "dead", "rejection", "gradient"),
    "filter_steps": 250, "final_steps": 2000, "final_share": 0.5, "space": ("auto",),
    "finalists": 6, "final_seeds": 5,
}  # fmt: skip
THOROUGH = QUICK | {
    "population": 128, "generations": 20, "islands": 8, "first_trees": 8000, "training_steps": 1000,
    "rungs": (0.1, 1.0), "rung_seeds": (2, 4), "finalists": 20, "final_seeds": 10,
}  # fmt: skip


def refusal(call, *arguments, **named):
    """The sentence of the InputError that the call raises: one line, whatever is wrong."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def typed(values):
    return {name: (type(value), value) for name, value in values.items()}


@pytest.mark.parametrize(("name", "table"), [("paper", PAPER), ("quick", QUICK), ("thorough", THOROUGH)])
def test_every_value_of_a_preset(name, table):
    assert typed(dict(SearchSettings.preset(name))) == typed(table)


def test_the_paper_is_the_default():
    assert SearchSettings() == SearchSettings.preset("paper")
    assert set(PRESETS) == {"paper", "quick", "thorough"}


def test_a_preset_takes_changes():
    settings = SearchSettings.preset("quick", population=7, generations=3)
    assert typed(dict(settings)) == typed(QUICK | {"population": 7, "generations": 3})


@pytest.mark.parametrize("name", ["fast", "", "Quick", 5, None, ["quick"]])
def test_an_unknown_preset_is_refused_with_the_choices(name):
    assert refusal(SearchSettings.preset, name) == f"preset must be one of quick, thorough, paper but got {name!r}"


def test_defaults_and_choices_agree_with_the_parts_that_use_them():
    engine, settings = EngineSettings(), SearchSettings()
    shared = set(SearchSettings.model_fields) & set(EngineSettings.__dataclass_fields__)
    assert {"population", "meta_steps", "training_steps", "filter_steps", "precision"} <= shared
    assert all(getattr(engine, name) == getattr(settings, name) for name in shared)
    assert get_args(Filter) == FILTERS
    for name, choices in {
        "activation": ACTIVATIONS, "precision": get_args(Precision), "population_mode": get_args(PopulationMode)
    }.items():  # fmt: skip
        assert get_args(SearchSettings.model_fields[name].annotation) == tuple(choices)


def test_height_limits_are_those_of_the_trees():
    # A crossover can double a tree's height before the cap is applied, and a full binary tree may be drawn at first.
    highest, fullest = MAX_HEIGHT // 2, (MAX_SIZE + 1).bit_length() - 2
    SearchSettings(max_height=highest, initial_height=(fullest, fullest))
    refused = [((2, 4), highest + 1), ((12, fullest + 1), 32), ((2, 4), 3), ((4, 2), 10), ((-1, 2), 10), ((0, 0), 0)]
    for heights, cap in refused:
        refusal(SearchSettings, initial_height=heights, max_height=cap)


MOST = {
    "population": 100_000, "tournament": 100_000, "filter_samples": 100_000, "finalists": 100_000, "chunk": 100_000,
    "inner_steps": 1_024, "final_seeds": 1_024, "threads": 1_024, "workers": 1_024,
}  # fmt: skip
COUNTS = (
    "population", "generations", "tournament", "meta_steps", "inner_steps", "training_steps", "batch_size",
    "filter_steps", "filter_samples", "final_seeds", "final_steps", "chunk", "threads", "max_evaluations", "patience",
    "migration", "max_age",
)  # fmt: skip
SHARES = ("crossover", "mutation", "elitism")
POSITIVE = ("meta_lr", "lr", "max_time")
NOT_NEGATIVE = ("parsimony", "momentum", "weight_decay")
TRUTHS = ("nesterov", "channels_last", "deterministic", "resplit")
OPTIONAL = {"tuned_rung", *(name for name, value in PAPER.items() if value is None)}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_whole_numbers_from_one_on(name):
    assert getattr(SearchSettings(**{name: 1}), name) == 1
    for value in (0, -3):
        assert refusal(SearchSettings, **{name: value}) == f"{name} must be at least 1 but got {value}"
    for value in (1.0, "5", True, [1]):
        assert refusal(SearchSettings, **{name: value}) == f"{name} must be a whole number but got {value!r}"


def test_there_may_be_no_finalists():
    assert SearchSettings(finalists=0).finalists == 0
    assert refusal(SearchSettings, finalists=-1) == "finalists must be at least 0 but got -1"
    assert SearchSettings().with_texts(["finalists=4", "final_seeds=2"]).finalists == 4


@pytest.mark.parametrize("name", [*COUNTS, "finalists", "workers"])
def test_counts_have_a_largest_value(name):
    most = MOST.get(name, 10**9)
    place = {"executor": "ray"} if name == "workers" else {}
    assert getattr(SearchSettings(**{name: most}, **place), name) == most
    assert refusal(SearchSettings, **{name: most + 1}, **place) == f"{name} must be at most {most} but got {most + 1}"


@pytest.mark.parametrize("name", SHARES)
def test_shares_lie_between_zero_and_one(name):
    others = {other: 0.0 for other in SHARES if other != name}
    for value in (0, 0.5, 1):
        kept = getattr(SearchSettings(**others, **{name: value}), name)
        assert (type(kept), kept) == (float, value)
    assert refusal(SearchSettings, **{name: -0.1}) == f"{name} must be at least 0 but got -0.1"
    assert refusal(SearchSettings, **{name: 1.1}) == f"{name} must be at most 1 but got 1.1"


@pytest.mark.parametrize("name", POSITIVE)
def test_rates_and_times_are_more_than_zero(name):
    assert getattr(SearchSettings(**{name: 1e-9}), name) == 1e-9
    for value in (0, -1.5):
        assert refusal(SearchSettings, **{name: value}) == f"{name} must be more than 0 but got {value}"


@pytest.mark.parametrize("name", NOT_NEGATIVE)
def test_some_numbers_may_be_zero(name):
    assert getattr(SearchSettings(**{name: 0}), name) == 0
    assert refusal(SearchSettings, **{name: -1e-3}) == f"{name} must be at least 0 but got -0.001"


@pytest.mark.parametrize("name", [*SHARES, *POSITIVE, *NOT_NEGATIVE])
def test_numbers_are_finite_and_no_texts(name):
    for value in (float("nan"), float("inf"), float("-inf")):
        assert refusal(SearchSettings, **{name: value}) == f"{name} must be a finite number but got {value}"
    assert refusal(SearchSettings, **{name: True}) == f"{name} must be a number but got True"
    assert refusal(SearchSettings, **{name: "5"}).startswith(f"{name} must be ")


@pytest.mark.parametrize("name", TRUTHS)
def test_truths_are_no_numbers(name):
    assert getattr(SearchSettings(**{name: True}), name) is True
    for value in (1, "true"):
        assert refusal(SearchSettings, **{name: value}) == f"{name} must be true or false but got {value!r}"


@pytest.mark.parametrize("name", sorted(set(PAPER) - OPTIONAL))
def test_only_optional_settings_may_be_none(name):
    assert refusal(SearchSettings, **{name: None}).endswith("but got None")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer": []}, "optimizer must be a string but got []"),
        ({"schedule": ""}, "schedule must be a string that is not empty but got ''"),
        ({"warmup": 1.0}, "warmup must be less than 1 but got 1.0"),
        ({"final_share": 1.0}, "final_share must be less than 1 but got 1.0"),
        ({"clip": 0.0}, "clip must be more than 0 but got 0.0"),
        ({"activation": "relu"}, "activation must be one of identity, softplus but got 'relu'"),
        ({"precision": "half"}, "precision must be one of float32, tf32, bfloat16 but got 'half'"),
        ({"population_mode": "both"}, "population_mode must be one of auto, stacked, looped but got 'both'"),
        ({"executor": "cloud"}, "executor must be one of local, ray but got 'cloud'"),
        ({"executor": "ray", "address": "here"}, "address must be auto or HOST:PORT but got 'here'"),
        ({"executor": "ray", "workers": 0}, "workers must be at least 1 but got 0"),
        ({"executor": "ray", "gpus_per_worker": -1.0}, "gpus_per_worker must be at least 0 but got -1.0"),
        ({"executor": "ray", "retries": -1}, "retries must be at least 0 but got -1"),
        (
            {"executor": "ray", "worker_timeout": "soon"},
            "worker_timeout must be seconds, or a string such as 90s, 15m, 2h, but got 'soon'",
        ),
        ({"islands": 0}, "islands must be at least 1 but got 0"),
        ({"surplus": 0.5}, "surplus must be at least 1 but got 0.5"),
        ({"islands": 2, "crossover": 0.5}, "crossover is for one island, but islands is 2"),
        ({"islands": 2, "parsimony": 0.1}, "parsimony is for one island, but islands is 2"),
        ({"workers": 2}, "workers is for executor ray, but executor is local"),
        ({"address": "auto"}, "address is for executor ray, but executor is local"),
        ({"device": "gpu"}, "device must be auto, cpu, cuda, cuda:0, mps but got 'gpu'"),
        ({"device": "cuda:1\n"}, "device must be auto, cpu, cuda, cuda:0, mps but got 'cuda:1\\n'"),
        (
            {"filters": ["dead", "live"]},
            "filters must be some of symbolic, admissible, dead, rejection, gradient but got 'live'",
        ),
        ({"filters": "dead"}, "filters must be a list but got 'dead'"),
        ({"filters": {"dead"}}, "filters must be a list but got {'dead'}"),
        ({"seed_with": "ce"}, "seed_with must be a list but got 'ce'"),
        ({"space": 3}, "space must be a list but got 3"),
        ({"seed_with": ["ce", 3]}, "seed_with must be a string but got 3"),
        ({"seed_with": [""]}, "seed_with must be a string that is not empty but got ''"),
        ({"metric": 3}, "metric must be a string but got 3"),
        ({"max_height": 0}, "max_height must be at least 1 but got 0"),
        ({"max_height": 33}, "max_height must be at most 32 but got 33"),
        ({"max_height": 3}, "initial_height must be at most max_height = 3 but got 4"),
        ({"initial_height": [4]}, "initial_height must be a lowest and a highest height but got (4,)"),
        ({"initial_height": (2, 3, 4)}, "initial_height must be a lowest and a highest height but got (2, 3, 4)"),
        ({"initial_height": 4}, "initial_height must be a list but got 4"),
        ({"initial_height": (2.0, 4)}, "initial_height must be a whole number but got 2.0"),
        ({"initial_height": (4, 2)}, "initial_height must go from the lower height to the higher but got 4 to 2"),
        ({"initial_height": (-1, 2)}, "initial_height must be at least 0 but got -1"),
        ({"crossover": 0.8}, "crossover and mutation must be at most 1 together but got 1.05"),
        ({"population": 10**5000}, "population must be at most 100000 but got something too large to show"),
        ({"population": [1] * 99}, f"population must be a whole number but got {'[' + '1, ' * 19 + '1'}…"),
    ],
)
def test_each_rule_has_its_sentence(changes, sentence):
    assert refusal(SearchSettings, **changes) == sentence
    assert refusal(SearchSettings.preset, "quick", **changes) == sentence
    assert refusal(SearchSettings().with_changes, **changes) == sentence


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11", "mps"])
def test_devices_by_name(device):
    assert SearchSettings(device=device).device == device


@pytest.mark.parametrize(
    ("key", "meant"), [("popluation", "population"), ("Population", "population"), ("meta-lr", "meta_lr")]
)
def test_an_unknown_key_gets_its_near_miss(key, meant):
    sentence = f"there is no setting named {key!r}: did you mean {meant!r}?"
    assert refusal(SearchSettings, **{key: 3}) == sentence
    assert refusal(SearchSettings().with_texts, [f"{key}=3"]) == sentence


def test_a_key_that_is_no_text_is_refused():
    rule = "the name of a setting must be text but got '\\udcffforged'"
    assert refusal(SearchSettings, **{"\udcffforged": 3}) == rule


@pytest.mark.parametrize("key", ["self", "name", "zzz", ""])
def test_an_unknown_key_like_no_other_gets_them_all(key):
    for call in (SearchSettings, SearchSettings().with_changes):
        sentence = refusal(call, **{key: 3})
        assert sentence.startswith(f"there is no setting named {key!r}: known names are population, generations, ")


def test_filters_have_one_order():
    assert SearchSettings(filters=["gradient", "dead", "dead"]).filters == ("dead", "gradient")
    assert SearchSettings(filters=()).filters == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1.5h", 5400), ("1h30m", 5400), ("1h0.5s", 3600.5), ("2m5s", 125)],
)
def test_time_as_a_text(text, seconds):
    assert SearchSettings(max_time=text).max_time == seconds
    assert SearchSettings().with_texts([f"max_time={text}"]).max_time == seconds


@pytest.mark.parametrize("text", ["", "soon", "s", "15", "-5s", "5m2h", "1e3s", "2 h", "2d", ".5h"])
def test_a_text_that_is_no_time(text):
    rule = "max_time must be seconds, or a string such as 90s, 15m, 2h, but got"
    assert refusal(SearchSettings, max_time=text) == f"{rule} {text!r}"


def test_no_time_at_all_and_too_much_of_it():
    assert refusal(SearchSettings, max_time="0s") == "max_time must be more than 0 but got 0.0"
    assert refusal(SearchSettings, max_time="9" * 400 + "h") == "max_time must be a finite number but got inf"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("population=10", 10),
        (" population = 10 ", 10),
        ("chunk=3", 3),
        ("chunk=none", None),
        ("crossover=0.5", 0.5),
        ("crossover=0", 0.0),
        ("lr=1e-2", 0.01),
        ("lr=None", None),
        ("max_time=90", 90.0),
        ("max_time=none", None),
        ("nesterov=true", True),
        ("nesterov=none", None),
        ("deterministic=False", False),
        ("initial_height=2,4", (2, 4)),
        ("initial_height=0, 3", (0, 3)),
        ("filters=symbolic,dead", ("symbolic", "dead")),
        ("filters=none", ()),
        ("filters=", ()),
        ("seed_with=ce,a=b.json", ("ce", "a=b.json")),
        ("metric=5", "5"),
        ("optimizer=adam", "adam"),
        ("device=cuda:1", "cuda:1"),
    ],
)
def test_texts_are_read_by_their_setting(text, value):
    name = text.partition("=")[0].strip()
    unlike = SearchSettings(chunk=9, lr=9.0, max_time=9.0, nesterov=False, deterministic=True, metric="mse")
    kept = getattr(unlike.with_texts([text]), name)
    assert (type(kept), kept) == (type(value), value)
    assert unlike.with_texts([text]) == unlike.with_changes(**{name: value})


@pytest.mark.parametrize("texts", [3, None, np.array(3), [3]])
def test_texts_must_be_texts(texts):
    assert refusal(SearchSettings().with_texts, texts).startswith("a setting must be given as key=value but got ")


def test_texts_count_together_and_the_last_of_a_key_counts():
    settings = SearchSettings.preset("quick").with_texts(["max_height=3", "initial_height=1,2", "max_height=2"])
    assert settings == SearchSettings.preset("quick", max_height=2, initial_height=(1, 2))
    assert settings.with_texts([]) == settings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("population", "a setting must be given as key=value but got 'population'"),
        ("=3", "a setting must be given as key=value but got '=3'"),
        ("", "a setting must be given as key=value but got ''"),
        ("population=", "population must be a whole number but got ''"),
        ("population=5.0", "population must be a whole number but got '5.0'"),
        ("population=none", "population must be a whole number but got 'none'"),
        ("population=0", "population must be at least 1 but got 0"),
        ("lr=fast", "lr must be a number but got 'fast'"),
        ("lr=nan", "lr must be a finite number but got nan"),
        ("nesterov=yes", "nesterov must be true or false but got 'yes'"),
        ("initial_height=2", "initial_height must be a lowest and a highest height but got (2,)"),
        ("initial_height=low,high", "initial_height must be a whole number but got 'low'"),
        ("filters=dead,", "filters must be some of symbolic, admissible, dead, rejection, gradient but got ''"),
        ("max_time=soon", "max_time must be seconds, or a string such as 90s, 15m, 2h, but got 'soon'"),
    ],
)
def test_a_text_that_cannot_be_read_says_why(text, sentence):
    assert refusal(SearchSettings().with_texts, [text]) == sentence


def test_a_file_over_its_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'population = 8\ninitial_height = [1, 3]\nlr = 1\nnesterov = false\nfilters = ["dead"]\n'
        'seed_with = ["ce", "größe.json"]\nmax_time = "15m"\n',
        encoding="utf-8",
    )
    changes = {
        "population": 8, "initial_height": (1, 3), "lr": 1.0, "nesterov": False, "filters": ("dead",),
        "seed_with": ("ce", "größe.json"), "max_time": 900.0,
    }  # fmt: skip
    assert typed(dict(SearchSettings.from_file(path))) == typed(QUICK | changes)
    assert SearchSettings.from_file(str(path)) == SearchSettings.from_file(path)
    path.write_text('preset = "paper"\r\npopulation = 8\r\n')
    assert SearchSettings.from_file(path) == SearchSettings.preset("paper", population=8)
    assert SearchSettings.from_file(path, preset="quick") == SearchSettings.preset("quick", population=8)
    path.write_text("")
    assert SearchSettings.from_file(path) == SearchSettings.preset("quick")
    assert SearchSettings.from_file(path, preset="paper") == SearchSettings.preset("paper")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"population 8", "is not a TOML file: expected '=' after a key"),
        (b"population = 8\npopulation = 9", "is not a TOML file: cannot overwrite a value"),
        (b"metric = \"\xff\"", "is not a TOML text file: byte 10 is not UTF-8"),
        (b"population = " + b"9" * 5000, "cannot be read: "),
        (b"population = " + b"[" * 100_000, "cannot be read: its brackets are nested too deeply"),
        (b"population = 0", "population must be at least 1 but got 0"),
        (b'population = "8"', "population must be a whole number but got '8'"),
        (b"popluation = 8", "there is no setting named 'popluation': did you mean 'population'?"),
        (b"self = 8", "there is no setting named 'self': known names are "),
        (b"[search]\npopulation = 8", "there is no setting named 'search': known names are "),
        (b"max_time = 01:00:00", "max_time must be a number but got datetime.time(1, 0)"),
        (b"lr = inf", "lr must be a finite number but got inf"),
        (b'preset = "fast"', "preset must be one of quick, thorough, paper but got 'fast'"),
        (b"preset = [1]", "preset must be one of quick, thorough, paper but got [1]"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_sentence_with_its_name(tmp_path, content, sentence):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    assert refusal(SearchSettings.from_file, path).startswith(f"{path}: {sentence}")


def test_a_file_that_cannot_be_read(tmp_path):
    missing = tmp_path / "missing.toml"
    assert refusal(SearchSettings.from_file, missing) == f"{missing}: there is no such file"
    assert refusal(SearchSettings.from_file, tmp_path) == f"{tmp_path}: must be a regular file but is a folder"
    assert "cannot be read: " in refusal(SearchSettings.from_file, "no\0name")


def test_a_wrong_preset_beside_a_file_is_not_the_files_fault(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    sentence = refusal(SearchSettings.from_file, tmp_path / "mine.toml", preset="fast")
    assert sentence == "preset must be one of quick, thorough, paper but got 'fast'"


def test_the_recipe_has_what_is_given():
    assert SearchSettings().recipe_changes() == {}
    given = {"lr": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "batch_size": 32}
    given |= {"schedule": "cosine:end=0.1", "warmup": 0.1, "clip": 1.0}
    assert SearchSettings(**given).recipe_changes() == given
    assert SearchSettings(momentum=0, meta_steps=3).recipe_changes() == {"momentum": 0.0}


def test_settings_stay_as_they_are():
    settings = SearchSettings()
    sentence = refusal(setattr, settings, "population", 5)
    assert sentence == "settings cannot be changed, but population was assigned: use with_changes"
    settings.with_changes(population=5)
    assert settings.population == 25


def test_equal_settings_are_one_key():
    first, second = SearchSettings(lr=1), SearchSettings(lr=1.0, filters=list(reversed(PAPER_FILTERS)))
    assert first == second
    assert len({first, second, SearchSettings()}) == 2


def numbers(least, most=1e6, *, exclude_min=False):
    return st.floats(least, most, exclude_min=exclude_min)


def drawn(name):
    """Any value that the setting of this name may have."""
    if name in COUNTS:
        values = st.integers(1, MOST.get(name, 10**9))
    elif name in POSITIVE:
        values = numbers(0, exclude_min=True)
    elif name in NOT_NEGATIVE:
        values = numbers(0)
    elif name in TRUTHS:
        values = st.booleans()
    else:
        values = {
            "crossover": numbers(0, 0.5),
            "mutation": numbers(0, 0.5),
            "elitism": numbers(0, 1),
            "max_height": st.integers(12, 32),
            "initial_height": st.tuples(st.integers(0, 6), st.integers(6, 12)),
            "optimizer": st.sampled_from(["sgd", "adam", "adamw:beta2=0.98"]),
            "schedule": st.sampled_from(["step", "cosine:end=0.1"]),
            "warmup": st.floats(0, 1, exclude_max=True),
            "final_share": st.floats(0, 1, exclude_max=True),
            "scaled_to": st.sampled_from(["baseline", "best"]),
            "clip": numbers(0, exclude_min=True),
            "filters": st.lists(st.sampled_from(FILTERS)).map(tuple),
            "activation": st.sampled_from(list(ACTIVATIONS)),
            "metric": st.text(min_size=1),
            "across_tasks": st.sampled_from(["worst", "rank", "mean"]),
            "seed_with": st.lists(st.text(min_size=1)).map(tuple),
            "space": st.lists(st.text(min_size=1)).map(tuple),
            "finalists": st.integers(0, MOST["finalists"]),
            "device": st.sampled_from(["auto", "cpu", "cuda:3"]),
            "precision": st.sampled_from(get_args(Precision)),
            "population_mode": st.sampled_from(get_args(PopulationMode)),
            "milestones": st.lists(st.integers(1, 10**9), max_size=3).map(tuple),
            "executor": st.just("ray"),  # of which the others are
            "address": st.sampled_from(["auto", "10.0.0.1:6379"]),
            "workers": st.integers(1, MOST["workers"]),
            "gpus_per_worker": numbers(0),
            "worker_timeout": numbers(0, exclude_min=True),
            "retries": st.integers(0, 100),
            "islands": st.just(1),  # several have rules that go with others
            "first_trees": st.just(100_000),
            "surplus": numbers(1, 100),
            "tried_rates": st.integers(1, 31),
            "rungs": st.sampled_from([(1.0,), (0.25, 1.0)]),
            "rung_seeds": st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
            "rung_share": numbers(0.1, 1),
            "tuned_rung": st.integers(1, 9),
        }[name]
    return st.none() | values if name in OPTIONAL else values


@given(st.fixed_dictionaries({name: drawn(name) for name in PAPER}))
def test_there_and_back_through_json(values):
    settings = SearchSettings(**values)
    loaded = json.loads(json.dumps(settings.model_dump(mode="json"), allow_nan=False))
    again = SearchSettings(**loaded)
    assert typed(dict(again)) == typed(dict(settings))
    assert (again, hash(again)) == (settings, hash(settings))


def test_there_and_back_through_pickle_and_copy():
    settings = SearchSettings.preset("quick", lr=0.1, seed_with=["ce"])
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert copy.deepcopy(settings) == settings


def test_workers_of_ray_have_a_thread_each_unless_told_otherwise():
    assert SearchSettings(executor="ray").threads == 1
    assert SearchSettings(executor="ray", threads=4).threads == 4
    assert SearchSettings().with_texts(["executor=ray", "worker_timeout=2m"]).worker_timeout == 120
    assert SearchSettings(executor="ray").with_changes(executor="local").threads == 1


def test_milestones_are_steps():
    assert SearchSettings(milestones=[100, 135]).milestones == (100, 135)
    assert SearchSettings().with_texts(["milestones=100,135"]).milestones == (100, 135)
    assert SearchSettings(milestones=[5]).with_texts(["milestones=none"]).milestones is None
    assert SearchSettings().with_texts(["milestones="]).milestones == ()
    assert refusal(SearchSettings, milestones=[0]) == "milestones must be at least 1 but got 0"
    assert refusal(SearchSettings, milestones=[1.5]) == "milestones must be a whole number but got 1.5"
    assert refusal(SearchSettings, milestones=7) == "milestones must be a list but got 7"


def test_settings_are_printed_as_what_they_change():
    assert repr(SearchSettings()) == str(SearchSettings()) == "SearchSettings()"
    assert repr(SearchSettings(population=7, device="cpu")) == "SearchSettings(population=7, device='cpu')"
    assert eval(repr(SearchSettings.preset("quick"))) == SearchSettings.preset("quick")


def test_every_setting_comes_back_from_its_text():
    settings = SearchSettings(filters=(), lr=0.1, nesterov=False, max_time="90s", metric="mae", chunk=3)
    texts = [f"{key}={value}" for key, value in settings.as_texts().items()]
    assert SearchSettings.preset("quick").with_texts(texts) == settings


def test_every_setting_is_described():
    found = {entry.name: entry for entry in describe()}
    assert list(found) == list(SearchSettings.model_fields)
    assert all(entry.description.endswith(".") and len(entry.description) > 20 for entry in found.values())
    for preset in PRESETS:
        settings = SearchSettings.preset(preset)
        assert {name: entry.presets[preset] for name, entry in found.items()} == dict(settings)
    names = ("population", "lr", "nesterov", "precision", "filters", "initial_height")
    assert [found[name].type for name in names] == [
        "whole number", "number or none", "true or false or none", "one of float32, tf32, bfloat16",
        "some of symbolic, admissible, dead, rejection, gradient", "list of whole numbers",
    ]  # fmt: skip
