"""Defines a client's operations, a module a concern, free of I/O: each yields its steps.

It does not own carrying steps out (`sync_client.py`) or repeating them (`exchange.py`).
"""
