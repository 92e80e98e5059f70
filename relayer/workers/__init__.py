"""Several serving processes on one machine: one that starts them, and what each of them does.

Not here: serving itself (`relayer.serve`).
"""
