"""A key of its own for every agent: what it is to hold, where it is kept, how it is made.

It does not own keys or grants themselves (`sealed/`).
"""
