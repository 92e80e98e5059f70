"""The HTTP library, imported here and nowhere else: to change it is to change one line.

`httpx2` is the maintained continuation of httpx and has the same names; all works with it. It does
not own what is sent (`client.py`), or the parts of the library that have no public name, which
`deadline.py` reaches.
"""

import httpx

__all__ = ["httpx"]
