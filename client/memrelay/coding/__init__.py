"""The memory of coding agents: what their hooks do before and after a turn.

A hook is a process of its own, so nothing is imported here.
"""
