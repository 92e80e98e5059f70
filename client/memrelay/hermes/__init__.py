"""The memory of Hermes Agent, and what installs it there.

`provider.py` runs inside Hermes, of which it imports the interface; everything else does not.
"""
