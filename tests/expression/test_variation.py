"""Variation of weighted trees: valid losses within the cap, and weights that go where their nodes go."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evomal.errors import InputError
from evomal.expression import Expression, variation
from evomal.expression.operators import Space
from evomal.expression.variation import MUTATIONS, Weighted
from evomal.randomness import generator
from tests.strategies import losses, seeds

SHAPING = [name for name in MUTATIONS if name != "weight mutation"]


def weighted(tree, first=2):
    """The tree with weights that are all different, none of them one."""
    return Weighted.of(tree, [float(number) for number in range(first, first + tree.edges)])


def parents(first=2):
    return losses(max_height=6).map(lambda tree: weighted(tree, first))


def kept(child, *origins):
    """Positions of the child's nodes that have a weight of a parent, and the positions where they were."""
    where = {weight: at for origin in origins for at, weight in enumerate(origin.node_weights) if at}
    return [(at, where[weight]) for at, weight in enumerate(child.node_weights) if weight != 1.0]


def is_valid(child, cap):
    return child.tree.is_loss and child.tree.height <= cap and len(child.weights) == child.tree.edges


@given(st.sampled_from(list(MUTATIONS)), parents(), st.integers(0, 3), seeds())
def test_mutations_give_valid_losses_within_the_cap(name, parent, room, seed):
    cap = parent.tree.height + room
    children = [MUTATIONS[name][0](parent, max_height=cap, generator=generator(seed)) for _ in range(2)]
    assert is_valid(children[0], cap)
    assert children[0].node_weights[0] == 1.0
    assert children[0] == children[1]


@given(parents(), parents(first=1000), st.integers(0, 3), seeds())
def test_crossover_gives_valid_losses_whose_nodes_keep_their_weights(first, second, room, seed):
    cap = max(first.tree.height, second.tree.height) + room
    children = [variation.crossover(first, second, max_height=cap, generator=generator(seed)) for _ in range(2)]
    child = children[0]
    assert child == children[1]
    assert is_valid(child, cap)
    for at, was in kept(child, first, second):
        origin = first if child.node_weights[at] < 1000 else second
        assert child.tree.tokens[at] == origin.tree.tokens[was]
    # All that is new is what a repair added: an operator over y and f.
    assert child.weights.count(1.0) in ((0,) if child.tree.edges == len(kept(child, first, second)) else (2, 3))


@given(st.sampled_from(SHAPING), parents(), seeds())
def test_nodes_that_are_kept_keep_their_order_tokens_and_weights(name, parent, seed):
    child = MUTATIONS[name][0](parent, generator=generator(seed))
    pairs = kept(child, parent)
    assert [was for _, was in pairs] == sorted({was for _, was in pairs})
    changed = [at for at, was in pairs if child.tree.tokens[at] != parent.tree.tokens[was]]
    assert len(changed) <= (name == "point mutation")


@pytest.mark.parametrize(("name", "new"), [("point mutation", 0), ("insertion", 2), ("deletion", 0), ("hoist", 0)])
@given(data=st.data())
def test_only_new_nodes_have_weight_one(name, new, data):
    parent, seed = data.draw(parents()), data.draw(seeds())
    child = MUTATIONS[name][0](parent, generator=generator(seed))
    # A repair adds three nodes in place of one. A node that was or becomes the root has no edge to keep.
    assert child.weights.count(1.0) <= new + 3


@pytest.mark.parametrize(
    ("name", "possible"),
    [
        ("point mutation", {("square(sub(y, f))", (2.0, 3.0, 4.0)): False, ("abs(sub(y, f))", (2.0, 3.0, 4.0)): True}),
        (
            "insertion",
            {
                ("square(tanh(sub(y, f)))", (1.0, 2.0, 3.0, 4.0)): True,
                ("square(sub(y, mul(f, -1)))", (2.0, 3.0, 1.0, 4.0, 1.0)): True,
                ("square(sub(max(y, y), f))", (2.0, 1.0, 1.0, 3.0, 4.0)): True,
                ("aq(square(sub(y, f)), f)", (1.0, 2.0, 3.0, 4.0, 1.0)): True,
                ("square(sub(y, add(1, -1)))", (2.0, 3.0, 1.0, 1.0, 1.0)): False,
            },
        ),
        ("deletion", {("sub(y, f)", (3.0, 4.0)): True, ("square(y)", (3.0,)): False}),
        ("hoist", {("sub(y, f)", (3.0, 4.0)): True}),
    ],
)  # fmt: skip
def test_children_of_a_small_parent(name, possible):
    parent = Weighted.of(Expression.parse("square(sub(y, f))"), [2.0, 3.0, 4.0])
    rng = generator(0, "small", name)
    children = {MUTATIONS[name][0](parent, generator=rng) for _ in range(3000)}
    for (text, weights), expected in possible.items():
        assert (Weighted.of(Expression.parse(text, fragment=True), weights) in children) == expected
    assert parent not in children


def test_the_argument_of_a_deleted_operator_takes_its_place_with_its_own_weight():
    parent = Weighted.of(Expression.parse("add(tanh(y), f)"), [2.0, 3.0, 4.0])
    children = {variation.delete(parent, generator=generator(seed)) for seed in range(50)}
    assert Weighted.of(Expression.parse("add(y, f)"), [3.0, 4.0]) in children


@given(parents(), seeds())
def test_weights_change_and_the_tree_does_not(parent, seed):
    child = variation.weights(parent, generator=generator(seed))
    assert child.tree == parent.tree
    assert child.weights != parent.weights
    assert all(math.isfinite(weight) and weight for weight in child.weights)


def test_factors_of_weights_are_log_normal_and_now_and_then_negative():
    parent = weighted(Expression(_full_sum(7, "y")))
    rng = generator(0, "factors")
    factors = np.concatenate(
        [np.divide(variation.weights(parent, generator=rng).weights, parent.weights) for _ in range(100)]
    )
    changed = factors[factors != 1.0]
    assert 0.28 < len(changed) / len(factors) < 0.32
    assert 0.08 < np.mean(changed < 0) < 0.12
    assert stats.kstest(np.log(np.abs(changed)) / 0.5, "norm").pvalue > 1e-3


def test_weights_beyond_the_range_of_floats_are_not_proposed():
    parent = Weighted.of(Expression.parse("sub(y, f)"), [1.7e308, 1.7e308])
    for seed in range(50):
        assert all(map(math.isfinite, variation.weights(parent, generator=generator(seed)).weights))


@given(parents(), seeds())
def test_a_drawn_mutation_never_returns_its_parent(parent, seed):
    cap = parent.tree.height
    name, child = variation.mutate(parent, max_height=cap, generator=generator(seed))
    assert name in MUTATIONS
    assert child != parent
    assert is_valid(child, cap)


def test_mutations_are_drawn_by_their_probabilities():
    parent = weighted(Expression.parse("mul(tanh(square(sub(y, f))), abs(log(add(f, 1))))"))
    rng = generator(0, "shares")
    drawn = Counter(variation.mutate(parent, generator=rng)[0] for _ in range(4000))
    probabilities = [probability for _, probability in MUTATIONS.values()]
    assert sum(probabilities) == pytest.approx(1.0)
    expected = [4000 * probability for probability in probabilities]
    assert stats.chisquare([drawn[name] for name in MUTATIONS], expected).pvalue > 1e-3


@given(st.sampled_from(SHAPING), st.sampled_from(["sub(y, f)", "square(sub(f, y))"]), seeds())
def test_new_tokens_are_those_of_the_space(name, text, seed):
    space = Space(("sub", "square"), ("y", "f"))
    child = MUTATIONS[name][0](Weighted.of(Expression.parse(text)), space=space, generator=generator(seed))
    assert {*child.tree.tokens} <= {"sub", "square", "y", "f"}


def test_what_cannot_be_changed_is_returned_as_it_is():
    parent = weighted(Expression.parse("sub(y, f)"))
    assert variation.hoist(parent, generator=generator(0)) is parent
    assert variation.insert(parent, max_height=1, generator=generator(0)) is parent


def test_a_child_larger_than_any_tree_may_be_is_not_proposed():
    largest = Expression(_full_sum(12, "y"))
    assert largest.size == 8191
    parent = Weighted.of(largest)
    assert variation.insert(parent, max_height=13, generator=generator(0)) is parent


def _full_sum(height, last):
    return (last,) if height == 0 else ("add", *_full_sum(height - 1, "y"), *_full_sum(height - 1, "f"))


def test_a_parent_above_the_cap_is_refused():
    parent = weighted(Expression.parse("tanh(tanh(sub(y, f)))"))
    with pytest.raises(InputError, match="a parent's height must be at most max_height = 2 but got 3"):
        variation.point(parent, max_height=2, generator=generator(0))


def test_wrong_number_of_weights():
    with pytest.raises(InputError, match="an expression of 3 nodes needs 2 weights"):
        Weighted.of(Expression.parse("sub(y, f)"), [1.0])
