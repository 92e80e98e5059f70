"""What may be done with memories, a module an operation, each the order of its steps.

Not here: HTTP (`relayer.routes`), statements (`relayer.database`), cryptography (`relayer.sealed`).
"""
