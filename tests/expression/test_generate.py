"""Random trees agree in distribution with DEAP's on the same settings."""

import operator
import random
from collections import Counter

import numpy as np
import pytest
from deap import gp
from scipy import stats

from evomal.errors import InputError
from evomal.expression import OPERATORS, PAPER, Expression, full, grow, half_and_half, ramped_half_and_half
from evomal.randomness import generator

COUNT = 8000


@pytest.fixture(scope="module")
def primitives():
    """DEAP's primitive set with the same names and arities; what they compute does not matter for generation."""
    pset = gp.PrimitiveSet("loss", 0)
    for row in (OPERATORS[token] for token in PAPER.operators):
        pset.addPrimitive(operator.add if row.arity == 2 else operator.neg, row.arity, name=row.token)
    for position, token in enumerate(PAPER.terminals):
        pset.addTerminal(position, name={"1": "one", "-1": "minus_one"}.get(token, token))
    return pset


DEAP_NAMES = {"one": "1", "minus_one": "-1"}


def from_deap(tree) -> Expression:
    return Expression(DEAP_NAMES.get(node.name, node.name) for node in tree)


@pytest.fixture
def deap_seed():
    state = random.getstate()
    random.seed(20)
    yield
    random.setstate(state)


def same_distribution(ours, theirs) -> float:
    """p-value of a chi-squared test of two samples of categories, rare ones pooled."""
    counts = Counter(ours), Counter(theirs)
    common = [key for key in counts[0] | counts[1] if counts[0][key] + counts[1][key] >= 20]
    table = [
        [count[key] for key in common] + [sum(count.values()) - sum(count[key] for key in common)] for count in counts
    ]
    table = np.array(table)[:, np.sum(table, axis=0) > 0]
    return 1.0 if table.shape[1] < 2 else stats.chi2_contingency(table).pvalue


@pytest.mark.usefixtures("deap_seed")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(full, gp.genFull), (grow, gp.genGrow), (half_and_half, gp.genHalfAndHalf)],
    ids=["full", "grow", "half_and_half"],
)
@pytest.mark.parametrize("heights", [(2, 4), (0, 2), (1, 3)])
def test_heights_sizes_and_tokens_agree_with_deap(primitives, ours, theirs, heights):
    rng = generator(0, "deap", ours.__name__, *heights)
    mine = [ours(heights, generator=rng) for _ in range(COUNT)]
    reference = [from_deap(theirs(primitives, min_=heights[0], max_=heights[1])) for _ in range(COUNT)]
    for measure in (
        lambda tree: [tree.height],
        lambda tree: [tree.size],
        lambda tree: [tree.tokens[0]],
        lambda tree: [tree.tokens[rng.integers(tree.size)]],
        lambda tree: [tuple(sorted(Counter(tree.depths).items()))[:2]],
    ):
        samples = [[value for tree in trees for value in measure(tree)] for trees in (mine, reference)]
        assert same_distribution(*samples) > 1e-4


def test_the_comparison_notices_a_difference():
    rng = generator(0, "notice")
    mine = [half_and_half((2, 4), generator=rng).size for _ in range(COUNT)]
    other = [half_and_half((2, 3), generator=rng).size for _ in range(COUNT)]
    assert same_distribution(mine, other) < 1e-6


def test_initial_population_is_valid_and_within_the_heights():
    trees = ramped_half_and_half(500, generator=generator(0, "initial"))
    assert all(tree.is_loss for tree in trees)
    # A repair adds one level under a leaf.
    assert {tree.height for tree in trees} <= {2, 3, 4, 5}


def test_under_a_tight_cap_unrepairable_trees_are_drawn_again():
    trees = ramped_half_and_half(300, heights=(2, 4), max_height=4, generator=generator(0, "tight"))
    assert all(tree.is_loss and tree.height <= 4 for tree in trees)


def test_same_generator_same_trees():
    draws = [ramped_half_and_half(50, generator=generator(7, "again")) for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("heights", [(3, 2), (-1, 2), (0, 65)])
def test_bad_heights(heights):
    with pytest.raises(InputError, match="heights must be a range within 0 to 64"):
        full(heights, generator=generator(0))


def test_initial_heights_above_the_cap():
    with pytest.raises(InputError, match="at most max_height = 3 but got 4"):
        ramped_half_and_half(1, max_height=3, generator=generator(0))
    with pytest.raises(InputError, match="max_height must be at least 1"):
        ramped_half_and_half(1, heights=(0, 0), max_height=0, generator=generator(0))
