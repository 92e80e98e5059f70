"""A relayer's condition, for whoever watches it: readiness, metrics, `relayer top`.

Not here: counting and timing (`relayer.telemetry`).
"""
