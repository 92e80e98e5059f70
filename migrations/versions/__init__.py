"""Revisions, one file each, raw SQL, one statement an execute."""
