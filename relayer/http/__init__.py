"""Requests before any route: connections, bodies, the checks of signed requests, errors as JSON.

Not here: the routes (`relayer.routes`), accounts and their keys (`relayer.tenants`).
"""
