"""What a client and a relayer exchange, in bytes: keys, grants, envelopes, unlocks, receipts.

Bytes in, bytes out: nothing here touches a socket, a file or a clock. Written from SPEC.md alone,
independently of the relayer's own; `tests/vectors/` binds the two.
"""
