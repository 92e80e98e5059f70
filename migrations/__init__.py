"""Alembic's environment and the numbered revisions of the schema."""
