"""The rules of a schema that lies on many nodes, and laying it out.

No Citus runs here. What is checked are the rules that were measured on a real cluster, over the
catalogue and over PostgreSQL's own parse trees; `cluster.py` has functions of Citus's names that
refuse what Citus refuses, so that the command is run as it is.
"""
