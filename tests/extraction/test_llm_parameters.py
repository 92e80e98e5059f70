"""What an endpoint takes of a request: found out once, and then asked for at once."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from relayer.errors import Unavailable
from relayer.extraction.facts import Excerpt
from relayer.extraction.model import SCHEMA, LlmExtractor
from relayer.llm import LanguageModel
from relayer.parameters import (
    REASONING_TOKENS_MAX,
    TOKENS_MAX,
    Parameters,
    find_named,
)
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, openai_server

SAID = Excerpt("user: FACT: Ada prefers green tea.")
TEA = "Ada prefers green tea."
EMPTY = Step(content='{"facts": []}')


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[LlmExtractor, OpenAIServer]]:
    """An extractor whose model's server takes what `options` leave of a request."""
    with openai_server(**options) as server:
        model = LanguageModel(base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL)
        yield LlmExtractor(model=model), server
        await model.close()


def sent(server: OpenAIServer) -> list[dict[str, Any]]:
    return [request.json for request in server.received]


def form(body: dict[str, Any]) -> str:
    wanted = body.get("response_format")
    if wanted is None:
        return "words"
    if wanted["type"] == "json_object":
        return "object"
    return "schema" if "maxItems" in json.dumps(wanted) else "plain schema"


async def test_structure_is_asked_for_with_bounds_and_nothing_random() -> None:
    async with asking() as (extractor, server):
        await extractor.extract(SAID)
        (body,) = sent(server)
    assert body["response_format"]["json_schema"] == {"name": "facts", "schema": SCHEMA}
    assert body["temperature"] == 0
    assert body["max_tokens"] == TOKENS_MAX
    item = SCHEMA["properties"]["facts"]["items"]  # type: ignore[index]
    assert item["required"] == ["text"]  # a small model spends no tokens on the others


@pytest.mark.parametrize(
    ("options", "forms"),
    [
        ({"refused": ("maxItems",)}, ["schema", "plain schema"]),
        ({"refused": ("maxLength",)}, ["schema", "plain schema"]),
        ({"refused": ("additionalProperties",)}, ["schema", "plain schema"]),
        ({"response_formats": ("text", "json_object")}, ["schema", "plain schema", "object"]),
        ({"refused": ("json_schema",)}, ["schema", "plain schema", "object"]),
        ({"refused": ("response_format",)}, ["schema", "plain schema", "object", "words"]),
        ({"response_formats": ("text",)}, ["schema", "plain schema", "object", "words"]),
    ],
    ids=str,
)
async def test_a_form_that_is_refused_is_asked_for_once(
    options: dict[str, Any], forms: list[str]
) -> None:
    async with asking(**options) as (extractor, server):
        for _ in range(3):
            assert [fact.text for fact in await extractor.extract(SAID)] == [TEA]
        assert [form(body) for body in sent(server)] == [*forms, *forms[-1:] * 2]
        assert {body["temperature"] for body in sent(server)} == {0}


@pytest.mark.parametrize("body", [b"", b"Bad Request", b"{}", b'{"detail":"no"}'])
@pytest.mark.parametrize("status", [400, 422])
async def test_a_refusal_that_names_nothing_costs_a_form_only_at_first(
    status: int, body: bytes
) -> None:
    """Afterwards it is the prompt that is refused."""
    refusal = Step(status=status, body=body or b" ")
    async with asking() as (extractor, server):
        server.script(refusal, refusal, EMPTY, refusal, EMPTY)
        await extractor.extract(SAID)
        with pytest.raises(Unavailable):
            await extractor.extract(SAID)
        await extractor.extract(SAID)
        assert [form(body) for body in sent(server)] == [
            *["schema", "plain schema", "object"],
            *["object"] * 2,
        ]


async def test_a_server_that_refuses_everything_has_all_been_offered_and_is_asked_anew() -> None:
    async with asking() as (extractor, server):
        server.script(*[Step(status=400)] * 5, EMPTY)
        with pytest.raises(Unavailable) as error:
            await extractor.extract(SAID)
        assert error.value.cause == "status 400"
        assert set(sent(server)[-1]) == {"model", "messages"}
        await extractor.extract(SAID)
        assert form(sent(server)[-1]) == "schema"


async def test_models_that_reason_take_another_bound_and_no_temperature() -> None:
    """As OpenAI's do."""
    async with asking(refused=("max_tokens", "temperature")) as (extractor, server):
        for _ in range(2):
            await extractor.extract(SAID)
        bodies = sent(server)
    assert [("temperature" in body, "max_tokens" in body) for body in bodies] == [
        (True, True),
        (True, False),
        *[(False, False)] * 2,
    ]
    assert bodies[-1]["max_completion_tokens"] == REASONING_TOKENS_MAX
    assert {form(body) for body in bodies} == {"schema"}


async def test_what_was_found_out_by_a_question_holds_for_an_extraction() -> None:
    async with asking(refused=("temperature",)) as (extractor, server):
        model = extractor._model  # the same one
        await model.answer(system="s", user="u")
        await extractor.extract(SAID)
        forms = [form(body) for body in sent(server)]
        assert forms == ["words", "words", "schema"]
        assert "temperature" not in sent(server)[-1]


async def test_a_bound_that_is_refused_is_left_out() -> None:
    async with asking(refused=("max_tokens", "max_completion_tokens")) as (extractor, server):
        for _ in range(2):
            await extractor.extract(SAID)
        assert len(sent(server)) == 4
        assert not {"max_tokens", "max_completion_tokens"} & set(sent(server)[-1])


@pytest.mark.parametrize(
    "thinking",
    [
        Step(content="<think>Is it a fact? Let me see.", finish_reason="length"),
        Step(message={"reasoning_content": "Is it a fact?"}, finish_reason="length"),
        Step(content="", message={"reasoning": "Is it a fact?"}, finish_reason="length"),
        Step(
            body=json.dumps(
                {
                    "choices": [{"message": {"content": ""}, "finish_reason": "length"}],
                    "usage": {"completion_tokens_details": {"reasoning_tokens": 2048}},
                }
            ).encode()
        ),
    ],
    ids=["tag", "member", "other member", "counted"],
)
async def test_a_model_whose_reasoning_took_all_tokens_gets_more_from_then_on(
    thinking: Step,
) -> None:
    async with asking() as (extractor, server):
        server.script(thinking, EMPTY, EMPTY)
        for _ in range(2):
            await extractor.extract(SAID)
        bounds = [body["max_tokens"] for body in sent(server)]
        assert bounds == [TOKENS_MAX, REASONING_TOKENS_MAX, REASONING_TOKENS_MAX]


async def test_reasoning_without_an_end_is_asked_about_once_more_and_no_oftener() -> None:
    endless = Step(content="<think>Hm. Hm.", finish_reason="length")
    async with asking() as (extractor, server):
        server.script(endless, endless)
        with pytest.raises(Unavailable) as error:
            await extractor.extract(SAID)
        assert (error.value.code, error.value.cause) == ("llm.invalid_output", "cut answer")
        assert len(sent(server)) == 2


async def test_an_answer_of_blanks_is_not_asked_for_again() -> None:
    """A grammar lets some models write blanks until they have to stop: in more room, more."""
    async with asking() as (extractor, server):
        server.script(Step(content=" \n" * 50, finish_reason="length"))
        with pytest.raises(Unavailable):
            await extractor.extract(SAID)
        assert len(sent(server)) == 1


async def test_a_form_that_never_gave_anything_of_use_is_given_up() -> None:
    """Some servers take a schema, and answer nothing then."""
    async with asking() as (extractor, server):
        server.script(*[Step(content="")] * 3)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await extractor.extract(SAID)
        assert [fact.text for fact in await extractor.extract(SAID)] == [TEA]
        server.script(Step(content=""))
        with pytest.raises(Unavailable):
            await extractor.extract(SAID)
        await extractor.extract(SAID)
        forms = ["schema", "plain schema", "object", *["words"] * 3]
        assert [form(body) for body in sent(server)] == forms


async def test_a_server_that_falls_over_a_schema_is_asked_without_it() -> None:
    fallen = Step(status=500, body=b'{"error":{"message":"failed to parse grammar"}}')
    async with asking() as (extractor, server):
        server.script(fallen, fallen, EMPTY, EMPTY)
        await extractor.extract(SAID)
        assert [form(body) for body in sent(server)] == ["schema", "plain schema", "object"]


async def test_a_page_of_a_proxy_names_no_parameter() -> None:
    page = Step(status=500, body=b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">')
    async with asking() as (extractor, server):
        server.script(page, EMPTY)
        await extractor.extract(SAID)
        assert [form(body) for body in sent(server)] == ["schema", "schema"]


@pytest.mark.parametrize("packed", [False, True])
async def test_of_a_refusal_only_the_beginning_is_waited_for(packed: bool) -> None:
    body = b'{"error":{"message":"temperature is not supported"}}'
    head = {"content-length": str(10**9)} | ({"content-encoding": "gzip"} if packed else {})
    hanging = Step(status=400, body=body, headers=head, cut=len(body), hang=True)
    async with asking() as (extractor, server):
        server.script(hanging, EMPTY)
        await extractor.extract(SAID)
        # What is said to be packed and is not names nothing: less structure is tried first.
        assert ("temperature" in sent(server)[-1]) == packed


async def test_many_at_once_settle_on_the_same() -> None:
    async with asking(response_formats=("text", "json_object")) as (extractor, server):
        await asyncio.gather(*[extractor.extract(SAID) for _ in range(5)])
        server.clear()
        await extractor.extract(SAID)
        assert [form(body) for body in sent(server)] == ["object"]


async def test_what_is_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="relayer.llm")
    async with asking(refused=("temperature",)) as (extractor, _):
        for _ in range(2):
            await extractor.extract(SAID)
    assert [record.message for record in caplog.records] == [
        "language model: the endpoint takes no temperature"
    ]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", ("temperature",)),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
            " 'max_completion_tokens' instead.",
            ("max_tokens", "max_completion_tokens"),
        ),
        (
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
            ("format",),
        ),
        ("Invalid schema for response_format 'facts': 'maxLength' is not permitted.", ("format",)),
        ('{"detail":[{"loc":["body","response_format"],"msg":"extra"}]}', ("format",)),
        ("maximum context length is exceeded", ()),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
            " (2952 in the messages, 2048 in the completion).",
            ("max_tokens",),
        ),
        ("Your account is empty.", ()),
        ("", ()),
    ],
)
def test_refusals_name_parameters(body: str, named: tuple[str, ...]) -> None:
    assert find_named(body) == named


def test_every_refusal_comes_to_an_end() -> None:
    parameters: Parameters | None = Parameters()
    steps = 0
    while parameters is not None:
        parameters = parameters.without(
            ("format", "temperature", "max_tokens", "max_completion_tokens")
        )
        steps += 1
    assert steps == 7
