"""Benchmarks: programs that print the figures of BENCHMARKS.md. Not installed, not part of a test."""
