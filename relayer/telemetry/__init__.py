"""What a process tells its operator about itself: counts, durations, spans, ids in log lines.

Not here: who may ask (`routes/metrics.py`), what is read when somebody does
(`monitoring/exposition.py`), how lines look (`logs.py`).
"""
