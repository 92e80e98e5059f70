"""What is signed of every change, and that it reaches the blob store.

Not here: the forms (`relayer.sealed`), reading a journal back (`relayer.recovery`).
"""
