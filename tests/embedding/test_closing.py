"""What becomes of models at their end when one of them cannot be closed.

Not here: an application's end (`serving/test_models_end.py`).
"""

import pytest

from relayer.embedding.embedders import close_all
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.models import Embedders
from relayer.embedding.openai import OpenAIEmbedder

NOBODY = Endpoint("http://127.0.0.1:9/v1")


class Stuck(OpenAIEmbedder):
    """One whose connections are closed, and that fails then."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__(endpoints=[NOBODY], model=name, dim=6)
        self._name, self._closed = name, closed

    async def close(self) -> None:
        await super().close()
        self._closed.append(self._name)
        raise OSError(self._name)


async def test_all_are_closed_and_the_first_failure_is_told() -> None:
    closed: list[str] = []
    whole = OpenAIEmbedder(endpoints=[NOBODY], model="whole", dim=6)
    with pytest.raises(OSError, match="first"):
        await close_all([whole, Stuck("first", closed), Stuck("second", closed)])
    assert closed == ["first", "second"]


async def test_an_older_one_that_fails_is_told_and_the_current_one_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed: list[str] = []
    embedders = Embedders(current=Stuck("current", closed), load=lambda _: Stuck("older", closed))
    await embedders.embed_queries(["tea"], ["older/6"], account=b"")
    with pytest.raises(OSError, match="current"):
        await embedders.close()
    assert sorted(closed) == ["current", "older"]
    assert [r.__dict__["event"] for r in caplog.records if "closed" in r.msg] == ["embedder.close"]
