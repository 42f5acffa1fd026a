"""Reading and writing expressions, and what is said of text that is none."""

import contextlib
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.prefix import MAX_HEIGHT, MAX_SIZE
from tests.strategies import fragments


@given(fragments(max_leaves=60))
def test_parse_of_print_is_the_tree_itself(tree):
    assert Expression.parse(str(tree), fragment=True) == tree


@given(fragments(max_leaves=10), st.sampled_from(["", " ", "\n", "\t "]))
def test_white_space_does_not_matter(tree, space):
    spaced = str(tree).replace("(", f"({space}").replace(")", f"{space})").replace(", ", f"{space},{space}")
    assert Expression.parse(spaced + space, fragment=True) == tree


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the expression is empty"),
        ("  ", "the expression is empty"),
        ("lgo(mul(y, f))", "unknown token 'lgo' at character 1: did you mean 'log'?"),
        ("add(y, x)", "unknown token 'x' at character 8: known tokens are add, sub,"),
        ("add(y, 2)", "unknown token '2' at character 8"),
        ("add(y, 1.5)", "unknown token '1.5' at character 8"),
        ("add(y)", "add takes 2 arguments but got 1 at character 1"),
        ("abs(sub(y, f), f)", "abs takes 1 argument but got more at character 14"),
        ("add(y, f, 1)", "add takes 2 arguments but got more at character 9"),
        ("add y, f", "add at character 1 is an operator and must be followed by '('"),
        ("add", "add at character 1 is an operator and must be followed by '('"),
        ("add(y, f", "the expression ends before add at character 1 is closed by ')'"),
        ("add(y,", "the expression ends before add at character 1 is closed by ')'"),
        ("add(, f)", "expected an operator or a terminal at character 5 but found ','"),
        ("add(y f)", "expected ',' or ')' at character 7 but found 'f'"),
        ("add(y, f) + 1", "an expression is one tree, but '+' follows it at character 11"),
        ("add(y, f))", "an expression is one tree, but ')' follows it at character 10"),
        ("y(f)", "an expression is one tree, but '(' follows it at character 2"),
        ("abs(f)", "a loss must use both y and f, but abs(f) does not use y"),
        ("square(y)", "a loss must use both y and f, but square(y) does not use f"),
        ("__import__('os')", "unknown token '__import__' at character 1"),
        ("(" * 100_000, "expected an operator or a terminal at character 1 but found '('"),
        ("abs(" * 100_000, f"may be at most {MAX_HEIGHT} levels high, exceeded at character {4 * MAX_HEIGHT + 1}"),
        ("a" * 1_000_000, "unknown token 'aaaaaaaaaaaaaaaaaaaa…' at character 1"),
        ("\x00", "unknown token '\\x00' at character 1"),
    ],
)
def test_bad_text_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(InputError) as caught:
        Expression.parse(text)
    assert isinstance(caught.value, ValueError)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def balanced(height: int) -> str:
    text = "f"
    for _ in range(height):
        text = f"add({text}, {text})"
    return text


def test_too_many_nodes():
    with pytest.raises(InputError, match=f"at most {MAX_SIZE} nodes"):
        Expression.parse(balanced(13))
    assert Expression.parse(balanced(10), fragment=True).size == 2047


@pytest.mark.parametrize("text", ["abs(" * 1_000_000, "add(f, " * 1_000_000, " " * 5_000_000, "y" * 5_000_000])
def test_hostile_text_takes_little_time_and_memory(text):
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(InputError):
        Expression.parse(text)
    taken, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 60
    assert peak < 2 * len(text) + 1_000_000


@pytest.mark.parametrize("value", [None, 3, b"add(y, f)", ["y"]])
def test_other_types_are_refused(value):
    with pytest.raises(InputError, match="an expression must be a string but got"):
        Expression.parse(value)


@given(st.text(max_size=60))
def test_any_text_parses_or_gives_the_error(text):
    try:
        tree = Expression.parse(text)
    except InputError:
        return
    assert Expression.parse(str(tree)) == tree


@given(fragments(max_leaves=8), st.integers(0, 200), st.sampled_from("(),yf1- \x00é(add"))
def test_a_changed_character_parses_or_gives_the_error(tree, place, character):
    text = str(tree)
    place %= len(text)
    with contextlib.suppress(InputError):
        Expression.parse(text[:place] + character + text[place + 1 :], fragment=True)
