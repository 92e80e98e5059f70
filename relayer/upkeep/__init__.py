"""What an operator does to an installation, behind `relayer.commands`.

Not here: arguments and what is printed (`relayer.commands`).
"""
