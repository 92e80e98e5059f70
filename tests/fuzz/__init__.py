"""A coverage-guided fuzzer of our own over everything that reads what others wrote."""
