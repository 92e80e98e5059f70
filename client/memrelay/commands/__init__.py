"""The commands of `memrelay`, a module for each group; each registers its own arguments.

It does not own exit codes (`cli.py`). A group's `register` takes an `Adder` and adds its parsers.
"""
