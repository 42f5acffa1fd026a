"""A fuzzer: hostile files, command lines and arguments, and what evomal must never do with them.

`make fuzz` runs it for minutes, `make test` for seconds. Each kind of input has a file with its generator, which draws
a list of edits of something valid. `oracle.py` says what is a fault; `campaign.py` repeats cases over processes and
drops edits from a failing case until each of those left is needed. A case depends on its seed and number alone.
"""
