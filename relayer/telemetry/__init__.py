"""A process's report of itself to its operator: counts, durations, spans, ids in log lines.

Not here: who may ask (`routes/metrics.py`), what is read when somebody does
(`monitoring/exposition.py`), how lines look (`logs.py`).
"""
