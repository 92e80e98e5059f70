"""Accounts, their keys, grants and namespaces: who may do what, and with which keys.

Not here: what an account remembers (`relayer.memories`), formats (`relayer.sealed`).
"""
