"""Texts to vectors: the built-in model, OpenAI-compatible endpoints, cache and coalescing.

Nothing here knows an account beyond a name that keeps caches apart, and nothing stores a vector.

- onnxruntime tells its makers about each process, its models and its runs, unless it is forbidden
  before it is loaded. Whatever loads it comes by here first.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
