"""Crossover, mutation and repair: valid children within the height cap, distributed as DEAP's."""

import hashlib
from collections import Counter

import pytest
from deap import gp
from hypothesis import given
from hypothesis import strategies as st

from evomal.errors import InputError
from evomal.expression import Expression, crossover, mutate, ramped_half_and_half, repair
from evomal.expression.generate import offspring
from evomal.expression.operators import Space
from evomal.randomness import generator
from tests.expression.test_generate import (  # noqa: F401 (fixtures)
    deap_seed,
    from_deap,
    primitives,
    same_distribution,
)
from tests.strategies import fragments, losses, seeds

caps = st.integers(1, 10)
rooms = st.integers(0, 3)


@given(losses(), losses(), rooms, seeds())
def test_crossover_gives_valid_trees_within_the_cap(first, second, room, seed):
    cap = max(first.height, second.height) + room
    for child in crossover(first, second, max_height=cap, generator=generator(seed)):
        assert child.is_loss
        assert child.height <= cap


@given(losses(), rooms, seeds())
def test_mutation_gives_valid_trees_within_the_cap(parent, room, seed):
    cap = parent.height + room
    child = mutate(parent, max_height=cap, generator=generator(seed))
    assert child.is_loss
    assert child.height <= cap


@given(fragments(), caps, seeds())
def test_repair_gives_a_loss_or_has_no_room(tree, cap, seed):
    repaired = repair(tree, max_height=cap, generator=generator(seed))
    if tree.is_loss:
        assert repaired is tree
    elif repaired is None:
        assert all(tree.depths[place] >= cap for place in tree.terminals)
    else:
        assert repaired.is_loss
        assert repaired.size == tree.size + 2
        assert repaired.height <= max(tree.height, cap)


def test_repair_draws_place_operator_and_order_evenly():
    rng = generator(0, "repair")
    tree = Expression.parse("add(1, tanh(f))", fragment=True)
    repaired = [str(repair(tree, max_height=10, generator=rng)) for _ in range(12_000)]
    counts = Counter(repaired)
    assert len(counts) == 2 * 6 * 2
    assert min(counts.values()) > 400
    assert max(counts.values()) < 600
    assert "add(aq(f, y), tanh(f))" in counts
    assert "add(1, tanh(max(y, f)))" in counts


def test_order_is_operator_then_repair_then_height_check():
    parent = Expression.parse("add(y, f)")
    rng = generator(0)
    full_height = Expression.parse("tanh(tanh(1))", fragment=True)
    # No room under the cap: the parent takes the child's place.
    assert offspring(parent, 0, full_height, max_height=2, generator=rng) is parent
    # Room for the repair, which itself reaches the cap.
    assert offspring(parent, 0, full_height, max_height=3, generator=rng).height == 3
    # A valid child that is too high.
    high = Expression.parse("tanh(tanh(add(y, f)))")
    assert offspring(parent, 0, high, max_height=2, generator=rng) is parent
    assert offspring(parent, 0, high, max_height=3, generator=rng) == high
    with pytest.raises(InputError, match="a parent's height must be at most max_height = 1 but got 3"):
        offspring(high, 0, parent, max_height=1, generator=rng)


def test_children_beyond_what_any_tree_may_be_are_replaced_by_their_parents():
    high = Expression(["tanh"] * 40 + ["add", "y", "f"])
    rng = generator(0, "high")
    for _ in range(50):
        assert all(child.height <= 60 for child in crossover(high, high, max_height=60, generator=rng))
        assert mutate(high, max_height=60, generator=rng).height <= 60


def test_leaves_are_not_crossed():
    leaf, tree = Expression(["f"]), Expression.parse("add(y, f)")
    assert crossover(leaf, tree, generator=generator(0)) == (leaf, tree)


def to_deap(primitives, tree):  # noqa: F811
    names = {"1": "one", "-1": "minus_one"}
    nodes = {node.name: node for kind in (primitives.primitives, primitives.terminals) for node in kind[object]}
    return gp.PrimitiveTree([nodes[names.get(token, token)] for token in tree.tokens])


@pytest.mark.usefixtures("deap_seed")
def test_crossover_and_mutation_agree_with_deap(primitives):  # noqa: F811
    # DEAP has no repair, so its children go through ours: what differs then are the points and the new subtrees.
    first = Expression.parse("add(mul(y, f), sub(tanh(y), max(f, y)))")
    second = Expression.parse("square(sub(add(y, f), min(f, sqrt(y))))")
    rng = generator(0, "variation")
    ours, theirs, mutants, their_mutants = [], [], [], []
    for _ in range(8000):
        ours.append(crossover(first, second, max_height=30, generator=rng)[0])
        theirs.append(from_deap(gp.cxOnePoint(to_deap(primitives, first), to_deap(primitives, second))[0]))
        mutants.append(mutate(first, max_height=30, generator=rng))
        expr = lambda pset, type_: gp.genHalfAndHalf(pset, min_=0, max_=2, type_=type_)  # noqa: E731
        their_mutants.append(from_deap(gp.mutUniform(to_deap(primitives, first), expr, primitives)[0]))
    their_mutants = [offspring(first, 0, tree, max_height=30, generator=rng) for tree in their_mutants]
    assert all(tree.is_loss for tree in theirs)
    assert same_distribution(map(str, ours), map(str, theirs)) > 1e-4
    assert same_distribution((tree.size for tree in mutants), (tree.size for tree in their_mutants)) > 1e-4


def test_a_long_evolution_keeps_every_tree_valid():
    rng = generator(0, "evolution")
    population = ramped_half_and_half(25, generator=rng)
    heights = set()
    for _ in range(60):
        parents = [population[rng.integers(25)] for _ in range(25)]
        population = [
            crossover(parent, parents[rng.integers(25)], generator=rng)[0]
            if rng.random() < 0.7
            else mutate(parent, generator=rng)
            for parent in parents
        ]
        heights |= {tree.height for tree in population}
        assert all(tree.is_loss and tree.height <= 10 for tree in population)
    assert max(heights) == 10


def test_draws_from_the_paper_s_space_keep_their_bits():
    """A search that is recorded is resumed by drawing the same trees again."""
    rng = generator(0, "digest")
    trees = ramped_half_and_half(200, generator=rng)
    trees += [mutate(tree, generator=rng) for tree in trees]
    trees += [child for pair in zip(trees[::2], trees[1::2], strict=True) for child in crossover(*pair, generator=rng)]
    assert hashlib.sha256("\n".join(map(str, trees)).encode()).hexdigest()[:16] == "68803f1a4998fc52"


def test_trees_are_made_of_the_tokens_of_the_space():
    space = Space(("sub", "square"), ("y", "f"))
    rng = generator(0, "small space")
    trees = ramped_half_and_half(50, space=space, generator=rng)
    trees += [mutate(tree, space=space, generator=rng) for tree in trees]
    assert {token for tree in trees for token in tree.tokens} == {"sub", "square", "y", "f"}
