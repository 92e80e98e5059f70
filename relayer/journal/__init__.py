"""Signatures of every change, and their way to the blob store.

Not here: the forms (`relayer.sealed`), reading a journal back (`relayer.recovery`).
"""
