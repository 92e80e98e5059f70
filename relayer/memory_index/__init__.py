"""Namespaces that are recalled from often, their index held in memory.

Not here: the same search as a statement (`database.recall`), for every other namespace.
"""
