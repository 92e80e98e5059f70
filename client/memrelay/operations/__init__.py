"""What a client can do, a module a concern, free of I/O: each operation yields its steps.

It does not own carrying steps out (`sync_client.py`) or repeating them (`exchange.py`).
"""
