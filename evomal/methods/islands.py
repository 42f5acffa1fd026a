"""Genetic programming on islands: several populations that exchange their best losses now and then.

One population converges to whatever came first. Islands search apart, and the best of each goes to the next every few
generations (Whitley, Rana and Heckendorn, The Island Model Genetic Algorithm, 1999). Members that are old make room for
younger ones, so that an island does not stop at its first good losses (after Hornby, ALPS, GECCO 2006).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evomal.expression import Expression, variation
from evomal.expression.variation import Weighted
from evomal.methods.candidates import Candidate, Carried, State, proposed
from evomal.methods.evaluation import SearchContext
from evomal.methods.random_search import draw_tree, fitting
from evomal.methods.strategy import Strategy
from evomal.randomness import generator

_CROSSOVER = 0.4  # share of the children: within an island parents are related, and a mutation explores more
_UNTRIED = (State.FAILED, State.PASSED_OVER)
_DRAWS = 4  # attempts at a candidate that was not proposed before


@dataclass
class _Member:
    """A candidate on an island, and for how many generations it has been there."""

    candidate: Candidate
    island: int
    age: int = 0


class IslandSearch(Strategy):
    """Proposes the members of all islands as they are, and their children, which inherit weights.

    A generation lists members, migrants and then new candidates, the islands taking turns: an evaluator that trains
    only the first new candidates that pass its filters is fair to all islands. What has no fitness is forgotten.
    """

    def __init__(self, context: SearchContext, seeds: Sequence[Expression] = ()) -> None:
        self._settings = settings = context.settings
        super().__init__(population=settings.population, generations=settings.generations)
        self._seed = context.seed
        self._first_trees = max(settings.first_trees or 0, settings.population)
        self._islands = min(settings.islands, settings.population)
        self._children = round(settings.surplus * settings.population)
        self._space = context.space
        self._seeds = [fitting(tree, settings.max_height, self._space) for tree in seeds][: self._first_trees]
        self._members: list[_Member] = []
        self._proposals: list[_Member] = []
        self._known: set[Hashable] = set()
        """Identities of the losses that were proposed, and of those that optimisation made of them."""

    def _propose(self) -> list[Candidate]:
        migrants = self._migrants()
        if self.generation == 0:
            # On one island, so that the others are free to find something else.
            kept = [_Member(proposed(tree, "seeded"), island=0) for tree in self._seeds]
            turns = _turns(self._first_trees - len(kept), self._islands, taken=len(kept))
        else:
            kept = [_carried(member, "elite", member.age + 1) for member in self._members]
            kept += [_carried(member, "migrant", 0) for member in migrants]
            turns = _turns(self._children, self._islands)
        parents: list[list[Candidate]] = [[] for _ in range(self._islands)]
        for member in _by_rank(self._members + migrants):
            parents[member.island].append(member.candidate)
        self._proposals = kept
        for island in turns:
            randomness = generator(self._seed, "islands", self.generation, len(self._proposals))
            self._proposals.append(_Member(self._new(parents[island], randomness), island))
        return [member.candidate for member in self._proposals]

    def _learn(self, candidates: list[Candidate]) -> None:
        results = list(zip(self._proposals, candidates, strict=True))
        fit = [replace(member, candidate=candidate) for member, candidate in results if candidate.has_fitness]
        # What was not tried may be proposed again.
        self._known -= {_identity(member.candidate) for member, candidate in results if candidate.state in _UNTRIED}
        self._members = []
        for island in range(self._islands):
            self._members += self._survivors([member for member in fit if member.island == island], island)
        self._known.update(_identity(member.candidate) for member in self._members)

    def _migrants(self) -> list[_Member]:
        """The best of every island, as members of the next, if it is time."""
        count = self._islands
        if self.generation % self._settings.migration:
            return []
        best = {member.island: member for member in reversed(_by_rank(self._members))}
        return [replace(best[island], island=(island + 1) % count) for island in sorted(best)]

    def _survivors(self, members: list[_Member], island: int) -> list[_Member]:
        """The best of an island; too old ones keep their places only while there is no younger one for them."""
        population, count = self._settings.population, self._islands
        places = population // count + (island < population % count)
        distinct = _distinct(members)
        young_first = sorted(distinct[1:], key=lambda member: member.age >= self._settings.max_age)
        return [*distinct[:1], *young_first][:places]

    def _new(self, parents: list[Candidate], randomness: np.random.Generator) -> Candidate:
        """A candidate that was not proposed before, if a few draws find one."""
        for _ in range(_DRAWS):
            candidate = self._drawn(parents, randomness)
            if _identity(candidate) not in self._known:
                break
        self._known.add(_identity(candidate))
        return candidate

    def _drawn(self, parents: list[Candidate], randomness: np.random.Generator) -> Candidate:
        settings = self._settings
        if not parents:
            return proposed(draw_tree(settings, randomness, self._space), "initial")
        first = self._winner(parents, randomness)
        if randomness.random() < _CROSSOVER:
            second = self._winner(parents, randomness)
            child = variation.crossover(
                _weighted(first), _weighted(second), max_height=settings.max_height, space=self._space,
                generator=randomness,
            )  # fmt: skip
            return proposed(child.tree, "crossover", (first.index, second.index), weights=child.weights)
        name, child = variation.mutate(
            _weighted(first), max_height=settings.max_height, space=self._space, generator=randomness
        )
        return proposed(child.tree, name, (first.index,), weights=child.weights)

    def _winner(self, parents: list[Candidate], randomness: np.random.Generator) -> Candidate:
        """The best of a few that are drawn evenly: parents are in order of rank."""
        return parents[int(randomness.integers(len(parents), size=self._settings.tournament).min())]


def _carried(member: _Member, origin: Carried, age: int) -> _Member:
    """A member in the next generation with the state that it has already: nothing is computed for it."""
    candidate = replace(member.candidate, origin=origin, parents=(member.candidate.index,))
    return _Member(candidate, member.island, age)


def _turns(count: int, islands: int, *, taken: int = 0) -> Iterator[int]:
    """The island of each new candidate: the one that had the fewest so far; the first island has `taken` already."""
    sizes = [taken] + [0] * (islands - 1)
    for _ in range(count):
        island = sizes.index(min(sizes))
        sizes[island] += 1
        yield island


def _by_rank(members: list[_Member]) -> list[_Member]:
    return sorted(members, key=lambda member: member.candidate.rank)


def _distinct(members: list[_Member]) -> list[_Member]:
    """The members by rank, without repetitions: of several with equal gradients, or equal genomes and weights, one.

    It is one that was trained, if there is any, and as old as the oldest: a loss does not become young by being found
    again.
    """
    found: list[_Member] = []
    first_of: dict[Hashable, _Member] = {}
    # A fitness that was taken over is an estimate: a smaller twin must not replace the loss that was trained.
    for member in sorted(_by_rank(members), key=lambda member: member.candidate.state is not State.EVALUATED):
        keys = [_identity(member.candidate), member.candidate.fingerprint or _identity(member.candidate)]
        first = next((first_of[key] for key in keys if key in first_of), None)
        if first is None:
            first = member
            found.append(member)
        first.age = max(first.age, member.age)
        first_of.update(dict.fromkeys(keys, first))
    return _by_rank(found)


def _identity(candidate: Candidate) -> Hashable:
    """Equal for equal losses; no weights mean that all are one."""
    return candidate.genome, () if all(weight == 1.0 for weight in candidate.weights) else candidate.weights


def _weighted(candidate: Candidate) -> Weighted:
    return Weighted.of(candidate.tree, candidate.weights or None)
