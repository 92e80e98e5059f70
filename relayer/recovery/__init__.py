"""Making rows and blobs agree again: what was lost, what is too much, what a journal still tells.

Not here: an operator's commands that ask for it (`relayer.upkeep`).
"""
