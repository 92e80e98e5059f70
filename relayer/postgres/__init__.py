"""The embedded PostgreSQL: its programs, its folder, its server, and sharing it between processes.

Nothing here knows a table.
"""
