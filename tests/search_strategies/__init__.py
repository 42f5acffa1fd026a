"""Tests of the search strategies; `tests.strategies` are Hypothesis strategies, another thing."""
