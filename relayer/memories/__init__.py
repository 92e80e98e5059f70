"""Operations on memories: a module each, which holds the order of its steps.

Not here: HTTP (`relayer.routes`), statements (`relayer.database`), cryptography (`relayer.sealed`).
"""
