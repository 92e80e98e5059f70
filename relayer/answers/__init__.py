"""An answer of a language model, read: its completion, its reasoning, the value that it holds.

Not here: how a model is asked (`llm.py`), nor what is believed of a value (`extraction`).
"""
