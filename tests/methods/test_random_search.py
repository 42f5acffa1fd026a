"""Random search: fresh ramped trees, whatever the outcomes."""

from collections import Counter

from scipy import stats

from evomal.expression import ramped_half_and_half
from evomal.methods.random_search import RandomSearch
from evomal.randomness import generator
from tests.expression.test_generate import same_distribution
from tests.methods.outcomes import make, run


def test_proposals_do_not_depend_on_outcomes():
    first, _ = run(make(RandomSearch, seed=3), 4)
    second, _ = run(make(RandomSearch, seed=3), 4, draw_seed=1)
    assert first == second
    assert len({proposal.genome for generation in first for proposal in generation}) > 80


def test_every_proposal_is_a_fresh_valid_loss():
    proposals, _ = run(make(RandomSearch, seed=0, population=40, generations=20, max_height=4), 20)
    everything = [proposal for generation in proposals for proposal in generation]
    assert {(proposal.origin, proposal.parents, proposal.state) for proposal in everything} == {("sampled", (), None)}
    assert all(proposal.expression.is_loss and proposal.expression.height <= 4 for proposal in everything)


def test_generations_are_distributed_as_ramped_trees():
    proposals, _ = run(make(RandomSearch, seed=0, population=100, generations=20), 20)
    sizes = [proposal.expression.size for generation in proposals for proposal in generation]
    drawn = [tree.size for tree in ramped_half_and_half(2000, generator=generator(1, "ramped"))]
    assert same_distribution(sizes, drawn) > 1e-3
    early = Counter(size > 8 for size in sizes[:1000]), Counter(size > 8 for size in sizes[1000:])
    assert stats.chi2_contingency([[count[True], count[False]] for count in early]).pvalue > 1e-3


def test_its_trees_are_not_those_of_another_purpose():
    drawn = ramped_half_and_half(1, generator=generator(0, "variation", 0, 0))
    assert make(RandomSearch, seed=0).ask()[0].expression != drawn[0]


def test_heights_are_those_of_the_settings():
    assert make(RandomSearch, seed=0, initial_height=[1, 1], max_height=1).ask()[0].expression.height == 1
