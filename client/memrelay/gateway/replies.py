"""An assistant's answer as its reader sees it: without reasoning and without words to a gateway.

It does not own what is taken out of every message (`blocks.py`).

- Reasoning that was cut off has no end, and what a server has cut off at its front no beginning:
  either way it is reasoning.
- A tag in backticks is talked about.
- Time is linear in the text.
"""

import re
from itertools import dropwhile
from typing import Final

_NAMES = r"(?:antml:|mm:|seed:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection)|antthinking"
_TAG: Final = re.compile(
    rf"(?<!`)(?:<\s?(?:(?P<end>/)\s?)?(?:{_NAMES})(?:\s[^<>]*)?>"
    r"|\[(?P<end2>/)?think\]|◁(?P<end3>/)?think▷|<\|(?:begin|(?P<end4>end))_of_thought\|>)(?!`)",
    re.IGNORECASE,
)
# The channels of OpenAI's harmony format and of Gemma 4; the last one is for the reader.
_CHANNEL: Final = re.compile(
    r"<\|channel\|?>\s?(?P<name>[a-z]{1,20})\b(?:[^<>\n]{0,100}<\|message\|>)?", re.IGNORECASE
)
_CHANNEL_END: Final = re.compile(r"<\|(?:end|return|call|start)\|>|<channel\|>")
# What is left of that format where a server drops the markers.
_RUN_TOGETHER: Final = re.compile(r"\A\s*analysis(?=\S)")
_FINAL = "assistantfinal"
# OpenClaw shows reasoning, if it is asked to, as lines of emphasis below a heading.
_SHOWN: Final = re.compile(r"\A\s*(?:Reasoning|Thinking):\s*\n")
_SILENT: Final = ("NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP", "[SILENT]")
_AROUND = " \n\t*`\"'.:!_"  # what models write around such a word
_MEDIA: Final = re.compile(r"^[^\S\n]*MEDIA:[^\n]*(?:\n|\Z)", re.MULTILINE)


def extract_reply(text: str) -> str:
    """Return what the reader of an assistant's reply sees: nothing if it only reasons."""
    return _without_silence(_MEDIA.sub("", _without_reasoning(_last_channel(text))).strip())


def _without_silence(text: str) -> str:
    """Return a text without the words at its ends that tell a gateway to send nothing."""
    end = text.rstrip(_AROUND)
    for word in _SILENT:
        if end.endswith(word) and not end[: -len(word)][-1:].isalnum():
            said = end[: -len(word)].rstrip(" \n*`_")
            return said if said.strip(_AROUND) else ""
    begin = text.lstrip(_AROUND)
    for word in _SILENT:
        if begin.startswith(word) and not re.match(r"\w", begin[len(word) :]):
            return begin[len(word) :].lstrip(_AROUND)
    return text


def _without_reasoning(text: str) -> str:
    kept, position, reasons = list[str](), 0, False
    for tag in _TAG.finditer(text):
        ends = any(tag.group("end", "end2", "end3", "end4"))
        if ends and not reasons:
            kept.clear()  # all before it was reasoning
        elif not ends and not reasons:
            kept.append(text[position : tag.start()])
        reasons = not ends
        position = tag.end()
    kept.append("" if reasons else text[position:])
    said = "".join(kept)
    if shown := _SHOWN.match(said):
        return "\n".join(dropwhile(_is_emphasis, said[shown.end() :].split("\n")))
    return said


def _is_emphasis(line: str) -> bool:
    bare = line.strip()
    return not bare or (bare.startswith("_") and bare.endswith("_"))


def _last_channel(text: str) -> str:
    """Return the final channel of an answer in the harmony format, other answers as they are."""
    channels = list(_CHANNEL.finditer(text))
    if not channels:
        if _RUN_TOGETHER.match(text) and _FINAL in text:
            return text.rpartition(_FINAL)[2]
        return text
    said = list[str]()
    for number, channel in enumerate(channels):
        following = channels[number + 1].start() if number + 1 < len(channels) else len(text)
        end = _CHANNEL_END.search(text, channel.end(), following)
        if channel["name"].lower() == "final":
            said.append(text[channel.end() : end.start() if end else following])
        elif end is not None and end[0] in {"<channel|>", "<|end|>"}:
            said.append(_after(text[end.end() : following]))
    return "\n".join(said)


def _after(text: str) -> str:
    """Return what follows a channel's end, without the head of the next message."""
    return re.sub(r"\A\s*<\|start\|>\s?\w{0,20}", "", text)
