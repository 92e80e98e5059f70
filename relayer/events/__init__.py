"""Telling others what happens to an account: events, webhooks, their delivery, and streams.

Not here: routes (`routes.events`), statements (`database.webhooks`).
"""
