"""Benchmarks: programs that print the figures of BENCHMARKS.md; not installed."""

import relayer.embedding  # noqa: F401  # before onnxruntime, which it forbids to report anything
