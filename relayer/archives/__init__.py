"""An account that leaves this relayer for another, or arrives from one.

Not here: the forms of what is moved (`relayer.portable`).
"""
