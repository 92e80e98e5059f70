"""What a query says and how found memories are ordered: words, vectors, times, one score of all.

Not here: the order of steps of a recall (`memories/recall.py`), statements (`database.recall`).
"""
