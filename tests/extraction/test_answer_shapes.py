"""Answers as models give them: whatever stands around the facts, one call, and none is lost.

Not here: what is believed of a fact (`test_extract_model.py`), which parameters a server takes
(`test_llm_parameters.py`).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from relayer.answers.decoding import find_last
from relayer.answers.reasoning import strip_reasoning
from relayer.answers.repair import Meter, repair
from relayer.errors import Unavailable
from relayer.extraction.facts import Excerpt
from relayer.extraction.items import read_choice, read_items, read_place
from relayer.extraction.model import LlmExtractor
from relayer.llm import LanguageModel
from relayer.prompts import system_prompt
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step, ToolCall
from tests.thinking import server

__all__ = ["server"]  # a fixture

SAID = Excerpt("user: Mira says her ferry leaves from pier 7, and Tom's boat is called Nautilus.")
FERRY = "Mira's ferry leaves from pier 7."
BOAT = "Tom's boat is called Nautilus."
ITEM = {"text": FERRY, "said_by": "user", "kind": "fact", "importance": "standard"}
FACTS = json.dumps({"facts": [ITEM]})
BOTH = json.dumps({"facts": [{"text": FERRY}, {"text": BOAT}]})
DRAFT = json.dumps({"facts": [{"text": "Mira likes the ferry and its pier."}]})
NESTED = json.dumps({"facts": json.dumps([ITEM])})


@pytest.fixture
async def extractor(server: OpenAIServer) -> AsyncIterator[LlmExtractor]:
    model = LanguageModel(base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL)
    yield LlmExtractor(model=model)
    await model.close()


ONE_FACT: dict[str, Any] = {
    # Reasoning
    "reasoning": f"<think>Is {{ferry}} a fact?</think>{FACTS}",
    "reasoning with a draft": f"<think>{DRAFT} or so</think>\n```json\n{FACTS}\n```",
    "reasoning without a beginning": f"The user talks of a {{ferry}} trip.\n</think>\n\n{FACTS}",
    "reasoning without an end": f"<think>The user talks of a {{ferry}}. So:\n{FACTS}",
    "thinking": f"<thinking>Is {{ferry}} a fact?</thinking>\n{FACTS}",
    "thinking of a kind": f'<thought type="plan">{{hm}}</thought>{FACTS}',
    "thinking in a namespace": f"<seed:think>{{hm}}</seed:think>{FACTS}",
    "reasoning tag": f"<reasoning>{{hm}}</reasoning>{FACTS}",
    "reflection and output": f"<reflection>{{hm}}</reflection><output>{FACTS}</output>",
    "brackets": f"[THINK]Is {{ferry}} a fact?[/THINK]{FACTS}",
    "triangles": f"◁think▷{{hm}}◁/think▷{FACTS}",
    "begin of thought": f"<|begin_of_thought|>{{hm}}<|end_of_thought|>{FACTS}",
    "start thinking": f"<|START_THINKING|>{{hm}}<|END_THINKING|><|START_RESPONSE|>{FACTS}",
    "a word before it": f"Sure.\n<think>Is {{ferry}} a fact?</think>\n{FACTS}",
    "it speaks of reasoning": json.dumps({"facts": [{"text": FERRY, "note": "</think>"}]}),
    "harmony": "<|channel|>analysis<|message|>{hm}<|end|><|start|>assistant<|channel|>final"
    f"<|message|>{FACTS}<|return|>",
    "harmony, a tool": "<|channel|>commentary to=functions.facts <|constrain|>json<|message|>"
    f"{FACTS}<|call|>",
    "harmony without its tokens": f"analysisThe user talks of {{ferries}}assistantfinal{FACTS}",
    "a channel": f"<|channel>thought\n{{hm}}<channel|>{FACTS}",
    "a turn": f"<start_of_turn>model\n{FACTS}<end_of_turn>",
    "the next turns": f"{FACTS}<|im_end|>\n<|im_start|>user\nHi\n<|im_start|>assistant\n{DRAFT}",
    "end of text": f"{FACTS}</s>",
    "in words": f"Thinking: {{hm}}\n\n**Answer:** {FACTS}",
    # What stands around
    "plain": FACTS,
    "byte order mark": "\ufeff" + FACTS,
    "fence": f"```json\n{FACTS}\n```",
    "fence without an end": f"```json\n{FACTS}",
    "prose before": f"From the conversation {{about ferries}} I took:\n{FACTS}",
    "prose after": f"{FACTS}\nNote: times use the {{local}} zone.",
    "prose with a colon": f"I read {{pier: 7, ferry: late}} and note:\n{FACTS}",
    "prose with a quote": f'The {{local "zone is odd}}.\n{FACTS}',
    "draft and final": f"{DRAFT}\nLet me revise that.\n{FACTS}",
    "draft and final, both broken": f"Draft: {DRAFT[:-2]},]}}\nFinal: {FACTS[:-2]},]}}",
    "an example after it": f"```json\n{FACTS}\n```\nAn example of another:\n```json\n{DRAFT}\n```",
    "no facts after it": f'{FACTS}\nIf there were none, it would be {{"facts": []}}.',
    "tags of an answer": f"<answer>{FACTS}</answer>",
    "the call of a tool": f'<tool_call>{{"name":"facts","arguments":{FACTS}}}</tool_call>',
    "mistral's call": f'[TOOL_CALLS] [{{"name":"facts","arguments":{FACTS}}}]',
    "an assignment": f"facts = {json.dumps([ITEM])}",
    "another object": f'{{"ok": true}}\n\nThe facts:\n\n{FACTS}',
    # Forms
    "array": json.dumps([ITEM]),
    "array of texts": json.dumps([FERRY]),
    "texts": json.dumps({"facts": [FERRY]}),
    "one object": json.dumps(ITEM),
    "an object in place of the list": json.dumps({"facts": ITEM}),
    "a text in place of the list": json.dumps({"facts": FERRY}),
    "numbered": json.dumps({"facts": {"1": ITEM}}),
    "numbered texts": json.dumps({"fact_1": FERRY}),
    "wrapped": json.dumps({"result": {"facts": [ITEM]}}),
    "wrapped twice": json.dumps({"data": {"output": {"facts": [ITEM]}}}),
    "memories": json.dumps({"memories": [{"memory": FERRY}]}),
    "data": json.dumps({"data": [{"fact": FERRY}]}),
    "by speaker": json.dumps({"user": [FERRY], "assistant": []}),
    "the schema, filled in": json.dumps({"type": "object", "properties": {"facts": [ITEM]}}),
    "a fact within": json.dumps({"facts": [{"fact": ITEM}]}),
    "a list within": json.dumps({"facts": [[ITEM]]}),
    "other keys": json.dumps({"Facts": [{"Text": FERRY, "Said By": "USER"}]}),
    "content": json.dumps({"facts": [{"content": FERRY}]}),
    "encoded twice": json.dumps(FACTS),
    "list encoded once more": NESTED,
    "escaped": FACTS.replace('"', '\\"'),
    "null beside it": json.dumps({"facts": [None, ITEM, 7, {}]}),
    "bullets": f"Here are the facts:\n\n- {FERRY}",
    "numbers": f"1. **{FERRY}**",
    # Nearly JSON
    "trailing commas": FACTS[:-3] + ",},],}",
    "raw line break": FACTS.replace("ferry leaves", "ferry\nleaves"),
    "python": repr(json.loads(FACTS)),
    "python literals": str({"facts": [ITEM | {"event_time": None, "sure": True}]}),
    "single quotes inside": f"{{'facts': [{{'text': '{FERRY}'}}]}}",
    "no quotes": f'{{facts: [{{text: "{FERRY}", said_by: user}}]}}',
    "comments": f'// facts\n{{"facts": [ /* one */ {{"text": "{FERRY}"}} // end\n]}}',
    "hash comment": f'{{"facts": [\n# one\n{{"text": "{FERRY}"}}]}}',
    "smart quotes": f"{{“facts”: [{{“text”: “{FERRY}”}}]}}",
    "quotes inside": f'{{"facts": [{{"text": "{FERRY}", "note": "she said "pier" twice"}}]}}',
    "a comma is missing": f'{{"facts": [{{"text": "{FERRY}" "kind": "fact"}}]}}',
    "braces doubled": "{" + FACTS + "}",
    "dots": f'{{"facts": [{{"text": "{FERRY}"}}, ...]}}',
    "no last brace": FACTS[:-1],
    "no last brackets": FACTS[:-2],
    "a bracket too many": FACTS + "}]",
    "behind many near misses": "{a: b} " * 40 + FACTS[:-2] + ",]}",
    "behind an open brace": f'So {{note: "it is late.\n{FACTS[:-2]},]}}',
}


@pytest.mark.parametrize("content", ONE_FACT.values(), ids=ONE_FACT)
async def test_a_fact_in_any_shape_costs_one_call(
    server: OpenAIServer, extractor: LlmExtractor, content: str
) -> None:
    server.script(Step(content=content))
    assert [fact.text for fact in await extractor.extract(SAID)] == [FERRY]
    assert len(server.received) == 1


BLOCKS = {
    "text": [{"type": "text", "text": FACTS}],
    "output text": [{"type": "output_text", "text": FACTS, "annotations": []}],
    "a text of parts": [{"type": "text", "text": FACTS[:20]}, {"type": "text", "text": FACTS[20:]}],
    "a value": [{"type": "text", "text": {"value": FACTS}}],
    "without a type": [{"text": FACTS}],
    "strings": [FACTS],
    "thinking": [
        {"type": "thinking", "thinking": DRAFT, "signature": "x"},
        {"type": "text", "text": FACTS},
    ],
    "mistral's thinking": [
        {"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]},
        {"type": "text", "text": FACTS},
    ],
    "reasoning": [{"type": "reasoning", "text": DRAFT}, {"type": "text", "text": FACTS}],
    "use of a tool": [{"type": "tool_use", "name": "facts", "input": {"facts": [ITEM]}}],
    "json": [{"type": "json", "json": {"facts": [ITEM]}}],
    "the object": {"facts": [ITEM]},
}


@pytest.mark.parametrize("content", BLOCKS.values(), ids=BLOCKS)
async def test_content_may_be_blocks(
    server: OpenAIServer, extractor: LlmExtractor, content: Any
) -> None:
    server.script(Step(content=content))
    assert [fact.text for fact in await extractor.extract(SAID)] == [FERRY]


MESSAGES = {
    "tool": Step(calls=(ToolCall("facts", {"facts": [ITEM]}),)),
    "tool beside a word": Step(content="Noted.", calls=(ToolCall("facts", {"facts": [ITEM]}),)),
    "tool a fact": Step(calls=(ToolCall("add", ITEM),)),
    "object of arguments": Step(
        message={"tool_calls": [{"function": {"name": "f", "arguments": {"facts": [ITEM]}}}]}
    ),
    "function": Step(message={"function_call": {"name": "facts", "arguments": FACTS}}),
    "parsed": Step(message={"parsed": {"facts": [ITEM]}}),
    "all as reasoning": Step(message={"reasoning_content": f"Hm.\n{FACTS}"}),
    "all as other reasoning": Step(content="", message={"reasoning": FACTS}),
    "reasoning beside it": Step(content=FACTS, message={"reasoning_content": DRAFT}),
    "byte order mark": Step(
        body=b"\xef\xbb\xbf" + json.dumps({"choices": [{"message": {"content": FACTS}}]}).encode()
    ),
    "older choice": Step(body=json.dumps({"choices": [{"text": FACTS}]}).encode()),
    "reason unknown": Step(content=FACTS, finish_reason="eos"),
}


@pytest.mark.parametrize("step", MESSAGES.values(), ids=MESSAGES)
async def test_facts_may_stand_beside_the_content(
    server: OpenAIServer, extractor: LlmExtractor, step: Step
) -> None:
    server.script(step)
    assert [fact.text for fact in await extractor.extract(SAID)] == [FERRY]
    assert len(server.received) == 1


TWO_FACTS = {
    "lines": f"{json.dumps({'text': FERRY})}\n{json.dumps({'text': BOAT})}",
    "lines of which one is broken": f'{json.dumps({"text": FERRY})}\n{{"text": "{BOAT}",}}',
    "lists, line by line": f"{FACTS}\n{json.dumps({'facts': [BOAT]})}",
    "objects in a fence": f"```\n{json.dumps({'text': FERRY})},\n{json.dumps({'text': BOAT})}\n```",
    "by subject": json.dumps({"people": [FERRY], "boats": [{"text": BOAT}]}),
    "lists of their own": json.dumps([{"facts": [FERRY]}, {"facts": [BOAT]}]),
    "bullets": f"* {FERRY}\n* {BOAT}\n",
    "repeats": json.dumps({"facts": [FERRY, BOAT, FERRY, BOAT]}),
}


@pytest.mark.parametrize("content", TWO_FACTS.values(), ids=TWO_FACTS)
async def test_facts_one_after_another_are_all_kept(
    server: OpenAIServer, extractor: LlmExtractor, content: str
) -> None:
    server.script(Step(content=content))
    assert [fact.text for fact in await extractor.extract(SAID)] == [FERRY, BOAT]


@pytest.mark.parametrize("finish_reason", ["length", "stop", "max_tokens"])
@pytest.mark.parametrize(
    "content",
    [
        BOTH[:-2] + ', {"text": "The harbour opens',
        BOTH[:-2] + ', {"text": "The harbour opens", "said',
        BOTH[:-2] + ", {",
        BOTH[:-2],
        json.dumps({"facts": [FERRY, BOAT]})[:-2] + ', "The harbour op',
        json.dumps([{"text": FERRY}, {"text": BOAT}])[:-1] + ', {"te',
        "```json\n" + BOTH[:-2] + ', {"text": "The',
        BOTH[:-2].replace("}, {", "},\n{") + ', {"text": "A", "tags": ["x", "y',
        f'{{"text": "{FERRY}"}}\n{{"text": "{BOAT}"}}\n{{"text": "The har',
    ],
    ids=["text", "field", "brace", "end", "texts", "array", "fence", "nested", "lines"],
)
async def test_whole_items_of_a_cut_answer_are_kept(
    server: OpenAIServer, extractor: LlmExtractor, content: str, finish_reason: str
) -> None:
    server.script(Step(content=content, finish_reason=finish_reason))
    assert [fact.text for fact in await extractor.extract(SAID)] == [FERRY, BOAT]
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "null",
        "None",
        '{"facts": []}',
        '{"facts": null}',
        '{"facts": {}}',
        '{"facts": "none"}',
        '{"memories": []}',
        "```json\n[]\n```",
        "[]\n\nNo durable facts were found.",
        "No facts found.",
        "There are no facts worth remembering in this conversation.",
        "There is nothing to remember.",
        "Nothing.",
        "<think>small talk</think>[]",
        f'Draft: {DRAFT}\nThat is small talk. Final: {{"facts": []}}',
    ],
)
async def test_no_facts_is_an_answer(
    server: OpenAIServer, extractor: LlmExtractor, content: str
) -> None:
    server.script(Step(content=content))
    assert await extractor.extract(SAID) == []
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (Step(content="I cannot help with that."), "unusable answer"),
        (Step(content="The user talks about ferries."), "unusable answer"),
        (Step(content='{"error": "x"}'), "unusable answer"),
        (Step(content='{"status": "ok"}'), "unusable answer"),
        (Step(content='{"facts": [{"kind": "fact"}]}'), "unusable answer"),
        (Step(content='{"facts": [{"text": "string"}, "user", "other"]}'), "unusable answer"),
        (Step(content=system_prompt("extract")), "unusable answer"),
        (Step(content="See [1] and the {} placeholder."), "unusable answer"),
        (Step(content='{"facts": [{"text": "Mira', finish_reason="length"), "cut answer"),
        (Step(content=f"<think>{FACTS}", finish_reason="length"), "cut answer"),
        (Step(content=""), "empty answer"),
        (Step(message={"reasoning_content": "Hm."}), "empty answer"),
        (Step(refusal="I will not."), "refusal"),
        (Step(content="x" * 2**20), "answer too long"),
    ],
    ids=str,
)
async def test_why_an_answer_is_of_no_use_is_told_in_fixed_words(
    server: OpenAIServer,
    extractor: LlmExtractor,
    step: Step,
    cause: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.script(step, step)
    with pytest.raises(Unavailable) as error:
        await extractor.extract(SAID)
    assert (error.value.code, error.value.cause) == ("llm.invalid_output", cause)
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"language model: {cause}"]


REASONED = {
    "tag": "<think>secret plan</think>Pier 7. [1]",
    "no beginning": "secret plan first.\n</think>\nPier 7. [1]",
    "thinking": "<thinking>secret plan</thinking>Pier 7. [1]",
    "process": "<thinking_process>secret plan</thinking_process>Pier 7. [1]",
    "nested": "<think>a <think> b</think> secret </think> Pier 7. [1]",
    "after it": "Pier 7. [1]\n<think>secret plan</think>",
    "unended after it": "Pier 7. [1]\n<think>secret plan",
    "brackets": "[THINK]secret plan[/THINK]Pier 7. [1]",
    "triangles": "◁think▷secret plan◁/think▷Pier 7. [1]",
    "thought": "<|begin_of_thought|>secret<|end_of_thought|>\n<|begin_of_solution|>Pier 7. [1]"
    "<|end_of_solution|>",
    "cohere": "<|START_THINKING|>secret<|END_THINKING|><|START_RESPONSE|>Pier 7. [1]"
    "<|END_RESPONSE|>",
    "deepseek": "secret<｜end▁of▁thinking｜>Pier 7. [1]",
    "harmony": "<|channel|>analysis<|message|>secret plan<|end|><|start|>assistant<|channel|>final"
    "<|message|>Pier 7. [1]",
    "flat harmony": "analysisThe secret planassistantfinalPier 7. [1]",
    "gemma": "<|channel>thought\nsecret plan<channel|>Pier 7. [1]",
    "answer": "secret plan <answer>Pier 7. [1]</answer>",
    "labels": "**Reasoning:** secret plan\n\n**Final answer:** Pier 7. [1]",
    "granite": "Here is my thought process:\nsecret\n\nHere is my response:\nPier 7. [1]",
    "turns": "Pier 7. [1]<end_of_turn>\n<start_of_turn>user\nsecret",
    "blocks": [{"type": "thinking", "thinking": "secret"}, {"type": "text", "text": "Pier 7. [1]"}],
    "plain blocks": [{"type": "text", "text": "Pier 7. [1]"}],
}


@pytest.mark.parametrize("content", REASONED.values(), ids=REASONED)
async def test_reasoning_is_no_part_of_an_answer_in_words(
    server: OpenAIServer, extractor: LlmExtractor, content: Any
) -> None:
    server.script(Step(content=content, message={"reasoning_content": "secret plan"}))
    assert await extractor._model.answer(system="s", user="u") == "Pier 7. [1]"


@pytest.mark.parametrize(
    "content",
    [
        "<think>secret plan",
        "<think>secret plan</think> ",
        "<thinking>secret plan",
        "secret plan</think>",
        "[THINK]secret plan",
        "<|channel|>analysis<|message|>secret plan",
        "analysisThe secret plan is",
        "Thinking: secret plan",
        [{"type": "thinking", "thinking": "secret plan"}],
    ],
)
async def test_reasoning_alone_is_no_answer(
    server: OpenAIServer, extractor: LlmExtractor, content: Any
) -> None:
    server.script(Step(content=content, message={"reasoning": "secret plan"}))
    with pytest.raises(Unavailable) as error:
        await extractor._model.answer(system="s", user="u")
    assert error.value.code == "llm.invalid_output"


def test_brackets_of_an_answer_are_no_reasoning() -> None:
    for text in ("Note [analysis] says so.", "See [2] & <b>pier</b>.", "2 < 3 > 1"):
        assert strip_reasoning(text) == text


HOSTILE = {
    "10 MB": "a{ " * 3_400_000,
    "brackets": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "arrays": '["' * 100_000,
    "braces": "{" * 100_000,
    "quotes": '{"a":"' * 50_000,
    "backslashes": '{"a":"' + "\\" * 100_000,
    "escaped quotes": '\\"' * 100_000,
    "keys": "{a: " * 50_000,
    "reasoning": "<think>" * 100_000,
    "ends": "</think>" * 100_000,
    "marks": "<" * 200_000,
    "channels": "<|channel|>" * 50_000,
    "turns": "<|im_start|>" * 50_000,
    "bullets": "- a\n" * 100_000,
    "big number": '{"facts": [' + "1" * 100_000 + "]}",
    "repeated repair": '{"facts":[' + 'NaN"a"`"' * 8_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_work_on_a_hostile_answer_has_an_end(text: str) -> None:
    """Counted in lines of Python that are run, so that a busy machine changes nothing."""
    steps = 0

    def count(*_: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        found = find_last(strip_reasoning(text), read_items, keys=["facts"])
    finally:
        sys.settrace(None)
    assert not found or text.startswith("- a")
    assert steps < 15_000_000


@pytest.mark.parametrize("mess", ["[" * 100_000, "{" * 100_000, "{about x} " * 13_000])
def test_facts_are_found_behind_a_hundred_thousand_braces(mess: str) -> None:
    found = find_last(mess + FACTS, read_items, keys=["facts"])
    assert found is not None
    assert found[0]["text"] == FERRY


def test_a_repair_that_takes_too_long_is_given_up() -> None:
    meter = Meter()
    assert repair("{" * 100_000, meter) is None  # looked at by nobody
    assert repair('{"a": [1, 2,],}', meter) == {"a": [1, 2]}
    assert repair('{"facts":["' + '"a"`"' * 10_000, meter) is None
    assert repair('{"a": [1, 2,],}', meter) is None


async def test_the_library_is_loaded_only_for_what_is_broken(server: OpenAIServer) -> None:
    script = (
        "import sys; from relayer.answers.decoding import find_last as f\n"
        "f('{\"a\": [1]}', lambda v: v, keys=['a']); print('json_repair' in sys.modules)\n"
        "f('{\"a\": [1,]}', lambda v: v, keys=['a']); print('json_repair' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert told.split() == [b"False", b"True"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("High", "high"), (" USER ", "user"), ("very high", "high"), (["low"], "low"), (3, "medium")],
)
def test_enumerations_count_in_any_case(value: object, expected: str) -> None:
    assert read_choice(("user", "high", "low", "medium"), value, "medium") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 0),
        ("1", 0),
        (" #2.", 1),
        ("[2]", 1),
        ([2], 1),
        (2.0, 1),
        (3, None),
        (0, None),
        (-1, None),
        ("none", None),
        (True, None),
        ("1 2", None),
        (None, None),
    ],
)
def test_a_known_memory_is_named_in_any_form(value: object, expected: int | None) -> None:
    assert read_place(value, 2) == expected
