"""Content-addressed blobs, wherever they are kept.

Not here: what is in them (`relayer.sealed`).
"""
