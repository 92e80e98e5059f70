"""The reading of queries and the order of hits: words, vectors, times, one score of all.

Not here: the order of steps of a recall (`memories/recall.py`), statements (`database.recall`).
"""
