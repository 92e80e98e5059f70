"""What an operator sees of a relayer: metrics, readiness, log lines, traces, dashboard, `top`.

Not here: who may see metrics, headers of answers (`test_answers.py`).
"""
