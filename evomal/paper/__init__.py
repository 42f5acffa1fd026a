"""What only the reproduction of the paper's appendix needs."""
