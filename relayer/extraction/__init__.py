"""Conversations to facts: by a language model, or by rules when there is none.

Nothing here stores a fact or knows whose it is.
"""
