"""The part of an agent gateway that remembers: what happens before and after every turn.

It depends on no gateway. A relayer that is slow, away or wrong never reaches the agent: a hook
answers within its deadline, with nothing if need be.
"""
