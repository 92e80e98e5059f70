"""Every SQL statement of the relayer, a module a concern; nothing outside this package speaks SQL.

- `$n` parameters and explicit columns only; every statement on tenant data names its account.
- Statements keep the rules that let the schema be distributed by account: no functions in DO
  UPDATE SET, no INSERT … SELECT … RETURNING from its own table, one statement an execute.
- On a cluster the parts of a statement run one after the other: none reads a table that one before
  it changes. Every table has its place in `distribution`.
"""
