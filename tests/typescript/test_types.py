"""The types of the TypeScript client's API are those of the API.

Not here: what the generator makes of a description (`package.py`, which needs Node).
"""

from litestar.types import ASGIApp

from relayer.http.openapi import document
from tests.framework import framework
from tests.generate_typescript import TARGET, head_of


def test_the_types_are_of_the_relayers_description(app: ASGIApp) -> None:
    """A route that changes changes them: `make typescript-types` writes them anew."""
    with TARGET.open() as file:
        assert file.readline() == head_of(document(framework(app).routes))
