"""Real relayers under real faults, and a proof afterwards that nothing was lost or doubled.

`make torture` runs the whole of it, `test_torture.py` a short one.
"""
