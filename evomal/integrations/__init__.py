"""Losses and searches inside other libraries; a module imports its library when it is first used."""
