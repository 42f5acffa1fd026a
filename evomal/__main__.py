"""`python -m evomal`, the same as the command `evomal`."""

from evomal.cli import main

main()
