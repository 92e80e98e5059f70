"""Arguments as hosts hand them on: texts that are JSON, and names that stand for none."""

import html
import json

import pytest

from memrelay.gateway.profiles import LiveProfile
from memrelay.mcp.tools import tools_of
from tests.client.mcp_scene import done, home, in_process, over_http, served, text_of

__all__ = ["home", "served"]  # fixtures

# As a text, or as the value that a host made of it.
TEXTS = [
    ('{"theme": "dark"}', '{"theme": "dark"}'),
    ('["dark", "light"]', '["dark", "light"]'),
    ("null", "null"),
    ("true", "true"),
    ("4711", "4711"),
    ('"quoted"', '"quoted"'),
    ({"theme": "größer"}, '{"theme": "größer"}'),
    (["dark", 1], '["dark", 1]'),
    (4711.5, "4711.5"),
    (False, "false"),
]
PLACEHOLDERS = ["null", "None", "undefined", " NULL ", "nil", ""]


async def text_in(client, memory_id):
    return html.unescape((await done(client, "memory_get", memory_id=memory_id))[1]["text"])


@pytest.mark.parametrize(("given", "said"), TEXTS)
async def test_a_text_that_looks_like_json_is_stored_and_edited_as_it_is(home, served, given, said):
    async with over_http(served) as client:
        stored = (await done(client, "memory_remember", text=given, namespace="json"))[1]
        assert await text_in(client, stored["id"]) == said
        plain = "The theme of this page is light."
        one = (await done(client, "memory_remember", text=plain, namespace="edits"))[1]["id"]
        await done(client, "memory_edit", memory_id=one, text=given)
        assert await text_in(client, one) == said
        await done(client, "memory_forget", memory_id=one)


@pytest.mark.parametrize(("given", "said"), TEXTS)
async def test_a_query_and_a_goal_may_look_like_json(home, served, given, said):
    async with over_http(served) as client:
        await done(client, "memory_recall", query=given, goal=given)
        analysed = await client.call_tool("memory_analyze", {"text": given, "namespace": "facts"})
        assert not analysed.is_error


@pytest.mark.parametrize("name", PLACEHOLDERS)
async def test_a_namespace_that_says_none_is_refused_by_every_tool(home, name):
    async with in_process(home.profile) as client:
        listed = (await client.list_tools()).tools
        taking = [tool for tool in listed if "namespace" in tool.input_schema["properties"]]
        assert len(taking) >= 9
        for tool in taking:
            needed = {
                "text": "The fox of this test is red.",
                "query": "fox",
                "memory_id": next(iter(home.ids.values())),
            }
            given = {k: v for k, v in needed.items() if k in tool.input_schema["properties"]}
            result = await client.call_tool(tool.name, {"namespace": name} | given)
            assert result.is_error
            assert text_of(result).startswith("namespace: leave it out for this agent's own")


async def test_a_null_that_is_none_leaves_the_namespace_out(home):
    async with in_process(home.profile, namespace="own") as client:
        text, _ = await done(client, "memory_remember", text="The fox is red.", namespace=None)
    assert "in own" in text


async def test_a_namespace_may_look_like_a_number(home):
    async with in_process(home.profile) as client:
        for name in ("2026", 2026):
            text, _ = await done(client, "memory_remember", text="The fox is red.", namespace=name)
            assert "in 2026" in text


async def test_lists_may_be_given_as_json_and_what_is_left_out_as_null(home):
    async with in_process(home.profile) as client:
        _, found = await done(client, "memory_list", tags='["fox"]', cursor="null", kind="null")
        assert found["memories"] == []
        stored = (await done(client, "memory_remember", text="The fox is red.", tags=["fox", 7]))[1]
        _, found = await done(client, "memory_list", tags='["fox", "7"]')
        assert [memory["id"] for memory in found["memories"]] == [stored["id"]]


def test_what_a_model_reads_of_a_text_is_that_it_is_one(home):
    for tool in tools_of(LiveProfile(None)):
        schema = json.dumps(tool.parameters)
        for name in ("text", "query", "goal", "namespace"):
            if name in tool.parameters["properties"]:
                assert '"string"' in json.dumps(tool.parameters["properties"][name]), schema
