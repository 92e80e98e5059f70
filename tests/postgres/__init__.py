"""The embedded PostgreSQL with real servers and real processes, each in a folder of its own."""
