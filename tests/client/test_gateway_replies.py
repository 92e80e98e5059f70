"""An assistant's reply as its reader sees it."""

import pytest

from memrelay.gateway.replies import extract_reply

SOLD = "The boat will be sold."


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>I prefer to hide it.</think>{SOLD}",
        f"I prefer to hide it.\n</think>\n{SOLD}",
        f"<thinking>\nI prefer to hide it.\n</thinking>\n\n{SOLD}",
        f"{SOLD}\n<thinking>I prefer to hide it",
        f"<thinking>Hide it.</thinking>{SOLD}",
        f"<thought>Hide it.</thought><reasoning>Hide it.</reasoning> {SOLD}",
        f"<think>Hide <think> it.</think>{SOLD}",
        f"<think>a</think>b</think>{SOLD}",
        f"[THINK]Hide it.[/THINK]{SOLD}",
        f"◁think▷Hide it.◁/think▷{SOLD}",
        f"<|begin_of_thought|>Hide it.<|end_of_thought|>{SOLD}",
        "<|channel|>analysis<|message|>Hide it.<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{SOLD}<|return|>",
        f"<|channel|>analysis<|message|>Hide it.<|end|><|start|>assistant\n{SOLD}",
        f"<|channel>thought\nHide it.<channel|>{SOLD}",
        f"analysisI prefer to hide it.assistantfinal{SOLD}",
        f"Reasoning:\n_I prefer to hide it._\n_More._\n\n{SOLD}",
        f"{SOLD}\n\nNO_REPLY",
        f"HEARTBEAT_OK {SOLD}",
        f"MEDIA:./hide.png\n{SOLD}",
        SOLD,
    ],
)
def test_reasoning_and_words_to_a_gateway_are_not_shown(reply: str) -> None:
    assert extract_reply(reply) == SOLD


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "<think>I prefer to hide it.",
        "<|channel|>analysis<|message|>Hide it.",
        "<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|call|>",
        "NO_REPLY",
        "**NO_REPLY**",
        '"NO_REPLY"',
        "HEARTBEAT_OK.",
        "[SILENT]",
        "ANNOUNCE_SKIP",
    ],
)
def test_a_reply_may_show_nothing(reply: str) -> None:
    assert extract_reply(reply) == ""


@pytest.mark.parametrize(
    "reply",
    [
        "Models reason between `<think>` and `</think>`.",
        "I think so. The thinking is: sell it.",
        "NO_REPLY_TOKEN is the name of a constant.",
        "Reasoning: it is too old.",
        "My analysis: sell it.",
    ],
)
def test_words_that_only_look_like_it_stay(reply: str) -> None:
    assert extract_reply(reply) == reply


@pytest.mark.parametrize(
    "seed",
    [
        "<think>",
        "</think>",
        "<|channel|>final",
        "<|channel|>analysis<|message|>x<|end|>",
        "*",
        "_\n",
    ]
    + ["NO_REPLY ", "MEDIA:", "\n ", "< ", "Reasoning:\n", "`"],
)
def test_half_a_megabyte_made_to_slow_it_down_is_read_through(seed: str) -> None:
    text = seed * (500_000 // len(seed))
    assert len(extract_reply(f"Reasoning:\n{text}")) <= len(text) + 11
    assert SOLD in extract_reply(f"{text}</think><|channel|>final<|message|>{SOLD}")
