"""HTTP: from a checked request to a service and back to JSON, a module a concern.

- A route holds no logic: it parses, calls one service, shapes the answer.
- Bodies and shapes stand beside the routes that use them; `shapes.py` has what several share.
"""
