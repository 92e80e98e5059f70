"""Benchmarks: programs that print the figures of BENCHMARKS.md; not installed."""
