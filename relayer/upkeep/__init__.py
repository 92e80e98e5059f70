"""An operator's work on an installation, behind `relayer.commands`.

Not here: arguments and what is printed (`relayer.commands`).
"""
