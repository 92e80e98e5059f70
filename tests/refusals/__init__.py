"""Requests that a relayer has to refuse: one table of named cases, one distinct defect each.

`table.py` joins the groups, `test_refusals.py` sends every case to one real relayer, and
`python -m tests.refusals` prints the table.
"""
