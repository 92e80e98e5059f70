"""Keeps one account in step at two relayers: what each has, what becomes of it, and the order.

Source: SPEC.md §17.6.
"""
