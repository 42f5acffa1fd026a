"""Trees packed into arrays."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evomal.errors import EvomalError, InputError
from evomal.expression import Expression
from evomal.expression.operators import OPERATORS, TOKENS, arity
from evomal.forest import Link, Programs
from evomal.forest.codes import CODE, CODES, FIRST, SECOND, operator_codes
from evomal.forest.programs import fitting_width
from tests.strategies import fragments


def test_a_small_tree():
    programs = Programs.of([Expression.parse("abs(log(mul(y, f)))"), Expression.parse("sub(y, f)")])
    tree = [[CODES["abs"], 1, 0], [CODES["log"], 2, 0], [CODES["mul"], 3, 4], [CODES["y"], 0, 0], [CODES["f"], 0, 0]]
    assert programs.nodes[0, :5].tolist() == tree
    assert programs.sizes.tolist() == [5, 3]
    assert (programs.count, programs.width) == (2, 16)
    assert programs.nodes.dtype == programs.sizes.dtype == torch.int32
    assert programs.edges().sum(1).tolist() == [4, 2]
    assert not programs.edges()[:, 0].any()


@settings(max_examples=50)
@given(st.lists(fragments(max_leaves=30), min_size=1, max_size=4))
def test_a_program_says_which_subtrees_an_operator_takes(trees):
    programs = Programs.of(trees)
    for tree, nodes, size in zip(trees, programs.nodes.tolist(), programs.sizes.tolist(), strict=True):
        assert size == tree.size
        for position, token in enumerate(tree.tokens):
            assert TOKENS[nodes[position][CODE]] == token
            arguments = [nodes[position][FIRST], nodes[position][SECOND]]
            assert [argument > 0 for argument in arguments] == [arity(token) > place for place in (0, 1)]
            taken = [tree.subtree(argument).tokens for argument in arguments if argument]
            assert sum(taken, (token,)) == tree.subtree(position).tokens


def test_weights_stand_behind_the_root():
    programs = Programs.of([Expression.parse("abs(log(mul(y, f)))"), Expression.parse("sub(y, f)")])
    packed = programs.packed([[2.0, 3.0, 5.0, 7.0], [11.0, 13.0]], dtype=torch.float64)
    assert packed[0].tolist() == [1, 2, 3, 5, 7, *[1] * 11]
    assert packed[1].tolist() == [1, 11, 13, *[1] * 13]
    assert torch.equal(packed != 1, programs.edges())


@pytest.mark.parametrize(("size", "width"), [(1, 16), (16, 16), (17, 32), (2047, 2048), (8191, 8192)])
def test_widths_are_few(size, width):
    assert fitting_width(size) == width


def test_what_does_not_fit():
    tree = Expression.parse("abs(log(mul(y, f)))")
    with pytest.raises(InputError, match="at least one expression but got none"):
        Programs.of([])
    with pytest.raises(InputError, match="width must be at least 5, the size of the largest expression, but got 4"):
        Programs.of([tree], width=4)
    assert Programs.of([tree], width=5).width == 5


@pytest.mark.parametrize(
    ("kind", "outputs", "link"),
    [
        ("regression", 1, Link.IDENTITY),
        ("regression", 3, Link.IDENTITY),
        ("classification", 1, Link.SIGMOID),
        ("classification", 2, Link.SOFTMAX),
        ("multilabel", 1, Link.SIGMOID),
        ("multilabel", 4, Link.SIGMOID),
    ],
)
def test_links(kind, outputs, link):
    assert Link.of(kind, outputs) is link


LARGER_TABLE = """
import dataclasses, importlib, sys
import evomal.expression.operators as table
from evomal.errors import EvomalError

table.OPERATORS["cosh"] = dataclasses.replace(table.OPERATORS["tanh"], token="cosh")
table.TOKENS = (*table.OPERATORS, *table.TERMINALS)
sys.modules.pop("evomal.forest.programs", None)
sys.modules.pop(sys.argv[1], None)
try:
    importlib.import_module(sys.argv[1])
except EvomalError as error:
    print(error)
"""


@pytest.mark.parametrize("backend", ["numba", "Triton"])
def test_a_backend_refuses_a_table_with_an_operator_that_it_does_not_implement(backend):
    if backend == "Triton":
        pytest.importorskip("triton")
    module = f"evomal.forest.{backend.lower()}_backend"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", LARGER_TABLE, module]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == f"the {backend} backend does not follow the operator table: cosh\n", done.stderr


def test_the_codes_of_a_backend_are_those_of_the_table_in_its_order():
    assert operator_codes("numba", *OPERATORS) == tuple(range(len(OPERATORS)))
    with pytest.raises(EvomalError, match=r"^the numba backend does not follow the operator table: exp$"):
        operator_codes("numba", *list(OPERATORS)[:-1])
    with pytest.raises(EvomalError, match=r"^the numba backend does not follow the operator table: another order$"):
        operator_codes("numba", *reversed(OPERATORS))
