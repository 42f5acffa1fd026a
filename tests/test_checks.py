"""Checks return the value they were given, or raise one sentence with the rule and that value."""

import numpy as np
import pytest
import torch

from evomal.checks import finite_number, finite_vector, one_of, options_in, suggestion, unknown_name, whole_number
from evomal.errors import InputError


def sentence_of(check, *arguments, **options):
    with pytest.raises(InputError) as caught:
        check(*arguments, **options)
    return str(caught.value)


def test_values_within_the_rules_are_returned():
    assert whole_number("seeds", np.int64(3), at_least=1, at_most=3) == 3
    assert finite_number("rate", 1, above=0) == 1.0
    assert one_of("kind", "b", ("a", "b")) == "b"
    assert finite_vector("theta", [1, 2]).tolist() == [1.0, 2.0]
    given = torch.ones(2, requires_grad=True)
    assert finite_vector("theta", given) is given


def test_options_have_the_types_of_their_defaults():
    defaults = {"hidden": 1000, "rate": 0.5, "simplified": False}
    found = options_in("net: hidden=64 ,rate=1,simplified=true", defaults)
    assert found == {"hidden": 64, "rate": 1.0, "simplified": True}
    assert [type(value) for value in found.values()] == [int, float, bool]
    assert options_in("net", defaults) == {}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("net:", "net has no option '': its options are hidden"),
        ("net:width=3", "net has no option 'width': its options are hidden"),
        ("net:hidden", "net: hidden needs a value, as in net:hidden=1000"),
        ("net:hidden=1,hidden=2", "net: hidden is given twice"),
        ("net:hidden=2.5", "net: hidden must be a whole number but got '2.5'"),
    ],
)
def test_options_are_refused_with_the_rule_they_break(spec, sentence):
    assert sentence_of(options_in, spec, {"hidden": 1000}) == sentence


@pytest.mark.parametrize(
    ("value", "bounds", "sentence"),
    [
        ("3", {}, "seeds must be a whole number but got '3'"),
        (True, {}, "seeds must be a whole number but got True"),
        (1.0, {}, "seeds must be a whole number but got 1.0"),
        (0, {"at_least": 1}, "seeds must be at least 1 but got 0"),
        (9, {"at_most": 8}, "seeds must be at most 8 but got 9"),
    ],
)
def test_a_whole_number_is_refused_with_the_rule_it_breaks(value, bounds, sentence):
    assert sentence_of(whole_number, "seeds", value, **bounds) == sentence


@pytest.mark.parametrize(
    ("value", "bounds", "sentence"),
    [
        ("1", {}, "rate must be a number but got '1'"),
        (False, {}, "rate must be a number but got False"),
        (float("nan"), {}, "rate must be a finite number but got nan"),
        (10**30, {}, "rate must be between -2^63 and 2^63 but got 1000000000000000000000000000000"),
        (0.0, {"above": 0}, "rate must be a finite number of more than 0 but got 0.0"),
        (1, {"at_least": 0, "below": 1}, "rate must be a finite number of at least 0 and less than 1 but got 1"),
    ],
)
def test_a_number_is_refused_with_the_rule_it_breaks(value, bounds, sentence):
    assert sentence_of(finite_number, "rate", value, **bounds) == sentence


def test_a_choice_must_be_one_of_the_names():
    assert sentence_of(one_of, "kind", ["a"], {"a": 1, "b": 2}) == "kind must be one of a, b but got ['a']"


def test_an_unknown_name_is_answered_with_the_nearest_one_or_all():
    assert str(unknown_name("loss", "Focl", ["focal", "ce"])) == "there is no loss named 'Focl': did you mean 'focal'?"
    assert suggestion("zzz", ["focal", "ce"], "losses") == "known losses are focal, ce"


def test_a_vector_must_hold_finite_numbers():
    assert sentence_of(finite_vector, "theta", [1.0, float("inf")]) == (
        "theta must be finite numbers but number 1 is inf"
    )
    assert sentence_of(finite_vector, "theta", ["a"]) == "theta must be a list of numbers but got ['a']"
    assert sentence_of(finite_vector, "theta", torch.ones(2, 2)) == (
        "theta must be a vector of floating-point numbers but got torch.float32 of shape (2, 2)"
    )
