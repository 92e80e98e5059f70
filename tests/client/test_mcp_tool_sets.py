"""Fewer tools by choice, short schemas, and answers that hold nothing a model has no use for."""

import json

import pytest

from memrelay.mcp.schemas import shorten_schema, without_receipts
from tests.client.mcp_scene import done, home, in_process

__all__ = ["home"]  # a fixture

CORE_CHARS_MAX = 5_000


async def told(client):
    """What a model is told of the tools."""
    tools = (await client.list_tools()).tools
    return {
        tool.name: json.dumps([tool.name, tool.description, tool.input_schema]) for tool in tools
    }


@pytest.mark.parametrize("chosen", ["core", "read"])
async def test_a_set_of_tools_is_short(home, chosen):
    async with in_process(home.profile) as client:
        everything = await told(client)
    async with in_process(home.profile, tools=chosen) as client:
        some = await told(client)
        absent = everything.keys() - some.keys()
        words = (client.instructions or "") + str(await client.list_prompts())
    assert sum(map(len, some.values())) <= CORE_CHARS_MAX
    assert some.items() < everything.items()
    assert "memory_recall" in words
    assert not [name for name in absent if f"{name} " in words or f"{name}:" in words]


async def test_those_that_read_are_marked_so(home):
    async with in_process(home.profile, tools="read") as client:
        tools = (await client.list_tools()).tools
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    assert prompts == {"recall_context"}


async def test_no_answer_has_a_receipt(home):
    async with in_process(home.profile) as client:
        _, kept = await done(client, "memory_remember", text="The kettle is on the stove.")
        memory_id = kept["id"]
        answers = [
            kept,
            (await done(client, "memory_edit", memory_id=memory_id, text="It is on a shelf."))[1],
            (await done(client, "memory_pin", memory_id=memory_id))[1],
            (await done(client, "memory_forget", memory_id=memory_id))[1],
        ]
        schemas = [tool.output_schema for tool in (await client.list_tools()).tools]
    assert "receipt" not in json.dumps([answers, schemas])


async def test_null_is_still_taken_for_a_missing_argument(home):
    async with in_process(home.profile) as client:
        await done(client, "memory_recall", query="kettle", namespace=None, kinds=None, tags=None)


def test_a_schema_keeps_what_it_demands():
    schema = {
        "title": "Arguments",
        "properties": {
            "title": {"title": "Title", "type": "string", "maxLength": 5},
            "kind": {"anyOf": [{"enum": ["a"]}, {"type": "null"}], "default": None, "title": "K"},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 0},
        },
        "required": ["title"],
    }
    assert shorten_schema(schema) == {
        "properties": {
            "title": {"type": "string", "maxLength": 5},
            "kind": {"enum": ["a"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 0},
        },
        "required": ["title"],
    }


def test_receipts_go_at_any_depth():
    answer = {"receipt": "MHg=", "results": [{"id": "a", "receipts": []}]}
    assert without_receipts(answer) == {"results": [{"id": "a"}]}
