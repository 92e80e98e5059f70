"""Reads and writes what client and relayer exchange: keys, grants, envelopes, receipts.

Bytes in, bytes out: nothing here touches a socket, a file or a clock. Written from SPEC.md alone,
independently of the relayer's own; `tests/vectors/` binds the two.
"""
