"""Edits the configuration files of other programs, and takes the edits back.

It does not own what is written there (`mcp_clients.py` and the hosts' own modules say that).
"""
