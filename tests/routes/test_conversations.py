"""What `analyze` answers to transcripts, also to such as cannot be read."""

import json

import httpx
import pytest

from tests.routes_scene import Answer, client, desk, named

__all__ = ["client", "desk", "named"]  # fixtures

MOVED = "I moved to Ghent in May."
SAID = [{"role": "user", "content": MOVED}, {"role": "assistant", "content": "Nice."}]


async def analyze(client: httpx.AsyncClient, path: str, text: str, **members: object) -> Answer:
    answer = await client.post(path, json={"text": text, **members})
    assert answer.status_code == 202, answer.text
    found: Answer = answer.json()
    return found


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SAID),
        "\n".join(map(json.dumps, SAID)),
        f"<|im_start|>user\n{MOVED}<|im_end|>\n<|im_start|>assistant\nNice.<|im_end|>",
        f"<user>{MOVED}</user>\n<assistant>Nice.</assistant>",
        f"[2026-11-20 10:00] user: {MOVED}\n[2026-11-20 10:01] assistant: Nice.",
    ],
)
async def test_transcripts_give_what_was_said_in_them(
    client: httpx.AsyncClient, named: Answer, text: str
) -> None:
    found = await analyze(client, "/v1/analyze", text, **named)
    assert [fact["text"] for fact in found["facts"]] == [MOVED]
    assert found["problem"] is None
    assert "problem" not in await analyze(client, "/api/analyze", text)


@pytest.mark.parametrize("text", ['{"city": "Ghent"}', json.dumps(SAID)[:-1], "<user>a</user> b"])
async def test_what_cannot_be_read_is_told(
    client: httpx.AsyncClient, named: Answer, text: str
) -> None:
    """The answer is one of no facts still: a client of MemWal's knows no other."""
    found = await analyze(client, "/v1/analyze", text, idempotency_key="k", **named)
    assert (found["facts"], found["status"]) == ([], "done")
    assert found["problem"].endswith(".")
    assert "Ghent" not in found["problem"]
    again = await analyze(client, "/v1/analyze", text, idempotency_key="k", **named)
    assert again["problem"] == found["problem"]
    assert (await analyze(client, "/api/analyze", text))["problem"] == found["problem"]


async def test_small_talk_is_no_problem(client: httpx.AsyncClient, named: Answer) -> None:
    found = await analyze(client, "/v1/analyze", "1. user: ok, thanks", **named)
    assert (found["facts"], found["problem"]) == ([], None)
