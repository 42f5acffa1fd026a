"""Methods: the paper's compositions of representation, strategy, filters and weight optimisation."""
