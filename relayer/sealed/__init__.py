"""The cryptography of SPEC.md: pure functions over bytes, one module a chapter.

Nothing here opens a socket, a file or a database, reads a clock or holds state.
"""
