"""Transcripts in the formats of programs."""

import ast
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from relayer.extraction.transcripts import transcript_messages, transcript_problem
from tests.extraction.ruled import texts
from tests.optional import unwrap

MOVED = "I moved to Ghent in May."
AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
SAID = [
    {"role": "system", "content": "I prefer rum."},
    {"role": "user", "content": MOVED},
    {"role": "assistant", "content": "Nice."},
]
EXPECTED = [("other", "I prefer rum."), ("user", MOVED), ("assistant", "Nice.")]
BLOCKS = [{"type": "text", "text": MOVED}, {"type": "image_url", "image_url": {"url": "x"}}]


def said(text: str) -> list[tuple[str, str]] | None:
    found = transcript_messages(text)
    return None if found is None else [(m.role, m.text) for m in found]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SAID),
        json.dumps(SAID, indent=2),
        "\ufeff" + json.dumps(SAID),
        f"```json\n{json.dumps(SAID)}\n```",
        json.dumps({"model": "x", "messages": SAID, "tools": [{"role": "user", "content": "x"}]}),
        json.dumps({"data": {"conversation": SAID}}),
        json.dumps([{"title": "x", "messages": SAID}]),
        json.dumps({"input": SAID}),
        "\n".join(map(json.dumps, SAID)),
        "\n\n".join(map(json.dumps, SAID)) + "\n",
        ",\n".join(map(json.dumps, SAID)) + ",",
    ],
)
async def test_json(text: str) -> None:
    assert said(text) == EXPECTED
    assert await texts(text) == [MOVED]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "user", "content": BLOCKS}, ("user", "", MOVED)),
        ({"role": "user", "content": [{"type": "input_text", "text": MOVED}]}, ("user", "", MOVED)),
        ({"role": "user", "content": ["a", "b"]}, ("user", "", "a\nb")),
        ({"role": "user", "content": {"parts": [MOVED]}}, ("user", "", MOVED)),
        ({"role": "user", "parts": [{"text": MOVED}]}, ("user", "", MOVED)),
        ({"role": "model", "parts": [{"text": MOVED}]}, ("assistant", "", MOVED)),
        ({"role": "user", "name": "uma", "content": MOVED}, ("user", "uma", MOVED)),
        ({"role": "user", "name": "assistant", "content": MOVED}, ("user", "", MOVED)),
        ({"role": "user", "name": "a\n2. user: b", "content": MOVED}, ("user", "", MOVED)),
        ({"role": "Human", "content": MOVED}, ("user", "", MOVED)),
        ({"from": "human", "value": MOVED}, ("user", "", MOVED)),
        ({"from": "gpt", "value": MOVED}, ("assistant", "", MOVED)),
        ({"sender": "human", "text": MOVED}, ("user", "", MOVED)),
        ({"sender": "human", "content": [], "text": MOVED}, ("user", "", MOVED)),
        ({"speaker": "Uma", "text": MOVED}, ("user", "Uma", MOVED)),
        ({"author": {"role": "user"}, "content": {"parts": [MOVED]}}, ("user", "", MOVED)),
        ({"author": {"name": "Uma"}, "content": MOVED}, ("user", "Uma", MOVED)),
        ({"type": "message", "user": "U12", "text": MOVED}, ("user", "U12", MOVED)),
        ({"type": "user", "message": {"role": "user", "content": MOVED}}, ("user", "", MOVED)),
        ({"payload": {"role": "user", "content": BLOCKS}}, ("user", "", MOVED)),
        (
            {"from": "Uma", "text": ["I moved ", {"type": "bold", "text": "to Ghent"}, "."]},
            ("user", "Uma", "I moved to Ghent."),
        ),
        # What nobody said:
        ({"role": "tool", "content": MOVED}, ("other", "", MOVED)),
        ({"role": "developer", "content": MOVED}, ("other", "", MOVED)),
        ({"role": "function", "name": "user", "content": MOVED}, ("other", "", MOVED)),
        ({"role": "retriever", "name": "Uma", "content": MOVED}, ("other", "Uma", MOVED)),
        ({"role": "user", "content": [{"type": "tool_result", "content": "a"}]}, ("user", "", "")),
        ({"role": "assistant", "content": None, "tool_calls": []}, ("assistant", "", "")),
        ({"role": "assistant", "content": [{"type": "thinking", "text": "a"}]},
         ("assistant", "", "")),
        ({"role": "assistant", "content": {"content_type": "thoughts", "text": "a"}},
         ("assistant", "", "")),
        ({"role": "user", "content": [{"type": [], "text": "a"}]}, ("user", "", "")),
    ],
)  # fmt: skip
def test_a_message_of_json(item: dict[str, Any], expected: tuple[str, str, str]) -> None:
    found = transcript_messages(json.dumps([item]))
    assert found is not None
    assert [(m.role, m.speaker, m.text) for m in found] == [expected]
    assert transcript_messages(json.dumps(item)) == found


def test_an_export_of_chatgpt() -> None:
    nodes = {
        "a": {"message": None},
        "b": {"message": {"author": {"role": "user"}, "content": MOVED}},
    }
    assert said(json.dumps([{"title": "x", "mapping": nodes}])) == [("user", MOVED)]


@pytest.mark.parametrize(
    "value",
    ["2026-11-20T10:00:00Z", "2026-11-20 10:00", 1795168800, 1795168800.0, 1795168800000]
    + ["1795168800.000200", "2026-11-20T12:00:00.000+02:00"],
)
def test_the_time_of_a_message(value: object) -> None:
    for name in ("timestamp", "created_at", "create_time", "date", "ts"):
        (message,) = transcript_messages(json.dumps([{name: value, **SAID[1]}])) or []
        assert message.said_at is not None
        assert message.said_at.replace(microsecond=0) == AT


@pytest.mark.parametrize("value", [None, True, "", "soon", 10**400, -(10**20), [], "9" * 16, 1e308])
def test_what_is_no_time_is_none(value: object) -> None:
    (message,) = transcript_messages(json.dumps([{"timestamp": value, **SAID[1]}])) or []
    assert message.text == MOVED
    assert message.said_at is None or message.said_at.year < 9999


@pytest.mark.parametrize(
    "text",
    [
        repr(SAID),
        repr({"messages": tuple(SAID)}),
        "\n".join(map(repr, SAID)),
        "[{role: 'user', content: 'I moved'}, {role: 'assistant', content: 'b',},]",
        r"""[{'role': 'user', 'content': "it's \x41 \u00c9 \U0001F600 \' \" \\ \n.", 'n': None}]""",
        "[{'role': 'user', 'content': '{\"role\": \"system\"} [x]', 'ok': True}]",
    ],
)
def test_values_as_a_program_prints_them(text: str) -> None:
    found = transcript_messages(text)
    assert found is not None
    expected = SAID if "assistant" in text and "moved'" not in text else None
    if expected:
        assert said(text) == EXPECTED
    elif "moved" in text:
        assert said(text) == [("user", "I moved"), ("assistant", "b")]
    else:
        [(role, content)] = unwrap(said(text))
        assert role == "user"
        assert content == ast.literal_eval(text)[0]["content"].strip()


TEMPLATES = {
    "ChatML": "<|im_start|>{}\n{}<|im_end|>\n",
    "Llama 3": "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>",
    "Gemma": "<start_of_turn>{}\n{}<end_of_turn>\n",
    "harmony": "<|start|>{}<|message|>{}<|end|>",
    "Zephyr": "<|{}|>\n{}</s>\n",
    "XML": "<{0}>{1}</{0}>\n",
    "XML with a role": '<message role="{}">{}</message>\n',
    "XML with a speaker": "<turn speaker='{}' n='1'>{}</turn>",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
async def test_marks_of_roles(template: str) -> None:
    text = "".join(template.format(m["role"], m["content"]) for m in SAID)
    assert said(text) == EXPECTED
    assert await texts(text) == [MOVED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
         [("user", "a"), ("assistant", "")]),
        ("<|im_start|>user name=uma\na", [("user", "a")]),
        ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na", [("user", "a")]),
        ("<bos><start_of_turn>model\na<end_of_turn>", [("assistant", "a")]),
        ("<|user|>\na\n<|assistant|>\nb<|end|>", [("user", "a"), ("assistant", "b")]),
        ("<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜>b<｜end▁of▁sentence｜>",
         [("user", "a"), ("assistant", "b")]),
        ("[INST] a [/INST] b", [("user", "a"), ("assistant", "b")]),
        ("<s>[INST] a [/INST] b</s>[INST] c [/INST]",
         [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "")]),
        ("[INST] <<SYS>>\nrum\n<</SYS>>\n\na [/INST] b", [("user", "a"), ("assistant", "b")]),
        ("[INST] a <<SYS>> b [/INST]", [("user", "a <<SYS>> b"), ("assistant", "")]),
        ("<human>a</human><ai>b</ai>", [("user", "a"), ("assistant", "b")]),
        ("<User>a &lt; b</User>", [("user", "a < b")]),
        ("<user>a <b>c</b></user>", [("user", "a <b>c</b>")]),
        ("<chat>\n<user>a</user>\n</chat>", [("user", "a")]),
        ('<?xml version="1.0"?>\n<messages><message from="Uma">a</message></messages>',
         [("user", "a")]),
        ('<message role="critic">a</message>', [("other", "a")]),
        ("<message>a</message>", [("other", "a")]),
        ("<|start|>assistant<|channel|>analysis<|message|>a<|end|>"
         "<|start|>assistant<|channel|>final<|message|>b<|return|>",
         [("other", "a"), ("assistant", "b")]),
    ],
)  # fmt: skip
def test_forms_of_marks(text: str, expected: list[tuple[str, str]]) -> None:
    assert said(text) == expected


@pytest.mark.parametrize("piece", [" ", "<<SYS>>", "<<SYS>> <"])
def test_a_long_instruction_is_read_once(piece: str) -> None:
    """A quadratic pattern would take a quarter of an hour for each of these."""
    inside = piece * (2**20 // len(piece))
    assert said(f"[INST]{inside}x[/INST]") == [
        ("user", f"{inside}x".strip()),
        ("assistant", ""),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user\na<|im_start|>system\nb<|im_end|>",  # not closed before the next
        "<|im_start|>user\na<|im_end|> b",
        "<|im_start|>user a<|im_end|>",
        "a <|im_start|>user\nb<|im_end|>",
        "[INST] a [INST] b [/INST]",
        "[/INST] a [INST]",
        "a [INST] b [/INST]",
        "<user>a</user> b",
        "a <user>b</user>",
        "<user>a",
        "<user>a</assistant>",
        "<user>a <user>b</user></user>",
        "<system>obey</system> I prefer tea.",
        "<div>a</div>",
        "<button>a</button>",
    ],
)
def test_what_is_no_transcript_as_a_whole_is_none(text: str) -> None:
    assert transcript_messages(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "Uma", "city": "Ghent"}', "JSON without messages"),
        ("[1, 2, 3]", "JSON without messages"),
        ("[" * 30_000 + "]" * 30_000, "JSON without messages"),
        ("[{'role': 'user', 'content': 'a'", "nearly JSON"),
        ("[{'role': 'user', 'at': date(2026, 1, 2)}]", "nearly JSON"),
        ("[HumanMessage(content='a'), AIMessage(content='b')]", "nearly JSON"),
        ("ChatCompletionMessage(content='a', role='assistant')", "nearly JSON"),
        ('[{"role": "user", "content": "a"', "nearly JSON"),
        ('{"a": 1}\n{"a": 2}', "JSON without messages"),
        ('[{"role": "tool", "content": "a"}]', "No message"),
        ("<|im_start|>user\na<|im_end|> b", "Close each message"),
        ("<user>a</user> b", "Close each message"),
    ],
)
async def test_what_cannot_be_read_is_told(text: str, words: str) -> None:
    assert await texts(text) == []
    problem = transcript_problem(text)
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        "ok, thanks",
        "[2026-12-03] dentist",
        "<ines@example.org> is new",
        json.dumps([SAID[2]]),
        '1. user: [{"role": "tool"}]\n\n2. user: ok',
        "",
    ],
)
def test_other_texts_without_facts_are_no_problem(text: str) -> None:
    assert transcript_problem(text) is None
