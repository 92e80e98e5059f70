"""Texts to vectors: the built-in model, OpenAI-compatible endpoints, cache and coalescing.

Nothing here knows an account beyond a name that keeps caches apart, and nothing stores a vector.
"""
