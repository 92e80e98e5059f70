"""Who gets at whose things: every route with every id that it can hold, asked by the wrong key.

`places.py` reads from the OpenAPI document where a request can name something, `pairs.py` what of a
victim's, `scene.py` makes the accounts and sends the requests, `test_matrix.py` says what must
hold, and `python -m tests.tenants` measures whether time tells anything.
"""
