"""The command line: one file for each group of commands."""

from evomal.cli.app import app, main

__all__ = ["app", "main"]
