"""Names that look like patterns mean themselves, and one name has one spelling.

Not here: names that are refused (`names.py`).
"""

import json
from urllib.parse import quote

import pytest

from tests.refusals.conftest import Desk
from tests.refusals.world import TEXT, World

PATTERNS = (
    "%", "_", "%%", "te_m", "t%", "team%", "\\", "\\%", "team\\", "*", ".*", "te?m", "[t]eam",
    "team'; --", "' OR ''='", "team\"", "$1", "{team}", "../team", "team/../team", "Team", "TEAM",
    "ｔｅａｍ", "тeam", "team.", "team/", "null",
)  # fmt: skip


@pytest.fixture
def world(desk: Desk) -> World:
    return desk.world


async def _listed(world: World, query: str) -> int:
    """How many memories a list has; it must not be refused."""
    reply = await world.send(world.got(f"/v1/memories?{query}").sent())
    assert reply.status == 200, reply.raw
    return len(reply.json()["memories"])


async def test_the_memory_itself_is_there(world: World) -> None:
    for query in ("namespace=team", "namespace=team&tag=mill", "namespace=team&source=gatehouse"):
        assert await _listed(world, query) == 1


async def test_no_name_is_a_pattern(world: World) -> None:
    """Namespaces, tags and sources are compared whole: wildcards and look-alikes find nothing."""
    for name in map(quote, PATTERNS):
        assert await _listed(world, f"namespace={name}") == 0
        assert await _listed(world, f"namespace=team&tag={name}") == 0
        assert await _listed(world, f"namespace=team&source={name}") == 0
    assert await _listed(world, "namespace=team&tag=mill&source=gate%25") == 0
    assert await _listed(world, "namespace=team&tag=mill&source=gate_ouse") == 0


async def test_no_pattern_forgets_what_it_does_not_name(world: World) -> None:
    for name in PATTERNS:
        for body in (
            {"namespace": name},
            {"namespace": "team", "source": name},
            {"namespace": "team", "tags": [name]},
        ):
            reply = await world.send(world.change("/v1/forget", body).sent())
            assert (reply.status, reply.json()["matched"]) == (200, 0), reply.raw
    assert await _listed(world, "namespace=team") == 1


@pytest.mark.parametrize(
    "spelled",
    ["cafe\u0301", " café", "café   ", " cafe\u0301 "],
    ids=["nfd", "left", "right", "both"],
)
async def test_normal_forms_and_outer_spaces_are_one_name(world: World, spelled: str) -> None:
    body = {"text": f"{TEXT} {spelled!a}", "namespace": spelled}
    stored = await world.send(world.change("/v1/remember", body).sent())
    assert json.loads(stored.body)["namespace"] == "café"
    assert await _listed(world, f"namespace={quote('café')}") >= 1
    listed = await world.send(world.got("/v1/namespaces").sent())
    assert [n["name"] for n in listed.json()["namespaces"]].count("café") == 1
