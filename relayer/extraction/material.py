"""The author's own part of a message: not code, output, quotes, blocks, reasoning.

It does not own telling messages apart (`conversation.py`), whose mail a mail is (`mails.py`), nor
which lines a program wrote (`output.py`).

- A block is cut out and what is left stays: no block costs the words around it.
- What only looks like a tag stays: an address, a comparison, a type's parameter, a lone tag.
- Time is linear in the text.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from relayer.extraction.captions import without_timings
from relayer.extraction.mails import without_others, without_quoted
from relayer.extraction.output import GAP, without_output

_CODE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,63})(?:\s[^<>]*)?>")
_INLINE: Final = re.compile(
    r"<(a|b|code|em|i|kbd|mark|s|small|span|strong|sub|sup|u)(?:\s[^<>]*)?>([^<>\n]*)</\1>",
    re.IGNORECASE,
)
_INLINE_DEPTH_MAX: Final = 3
# What programs put into a message wherever it stands, such as memories and reminders …
_INJECTED: Final = re.compile(
    r"[\w-]*memor(?:y|ies)\b|[\w:.-]*[-_:](?:context|instructions?|metadata|reminder)\Z"
)
# … and what is theirs where a line begins with it: names of two words, and usual ones of one.
_INJECTED_LINE: Final = re.compile(
    r"\w+(?:[-_:.]\w+)+\Z"
    r"|(?:attachments?|context|documents?|environment|files?|instructions?|metadata|reminder)\Z"
)
# What clients wrap a user's own words in.
_USERS_TAG: Final = re.compile(
    r"</?user[-_](?:query|message|input|request|prompt|text|question)(?:\s[^<>]{0,200})?>",
    re.IGNORECASE,
)
# What stands before something that begins a line, or a message.
_LINE: Final = re.compile(r"\s*\Z")
_LINE_OR_MESSAGE: Final = re.compile(r"\s*(?:\d{1,5}\. )?(?:[^\n:]{1,60}:\s+)?\Z")
_BEFORE_CHARS_MAX: Final = 80
_THOUGHT: Final = (
    r"(?:\w{1,20}:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|antthinking)"
)
_THOUGHTS: Final = re.compile(
    rf"(?P<begin><{_THOUGHT}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>)"
    rf"|</{_THOUGHT}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>",
    re.IGNORECASE,
)
# The channels that a model of the format harmony writes to: only one is for who reads it.
_CHANNEL: Final = re.compile(
    r"(?:<\|start\|>\w{1,20}[^<>\n]{0,60})?<\|channel\|>(?P<name>\w{1,20})[^<>\n]{0,60}"
    r"(?:<\|constrain\|>\w{1,20})?<\|message\|>"
)
_CHANNEL_END: Final = re.compile(r"<\|(?:end|return|call)\|>")


def own_words(text: str) -> str:
    """Return `text` without code, comments, XML blocks, quoted lines, mails of others, output of
    programs and timings of captions; what goes leaves a gap."""
    text = _without_comments(without_code(text))
    for _ in range(_INLINE_DEPTH_MAX):
        text = _INLINE.sub(r"\2", text)
    lines = without_others(_without_tags(text).split("\n"))
    return "\n".join(without_timings(without_output(without_quoted(lines))))


def without_quotes(text: str) -> str:
    """Return `text` with an empty line in place of each that is quoted."""
    return "\n".join(without_quoted(text.split("\n")))


def without_code(text: str) -> str:
    """Return `text` without fenced blocks; one that is never closed reaches to the end."""
    return _without(text, _code_spans(text), between=GAP)


def _code_spans(text: str) -> list[tuple[int, int]]:
    spans, begin, fence = list[tuple[int, int]](), 0, ""
    for match in _CODE.finditer(text):
        if not fence:
            begin, fence = match.start(), match[1]
        elif match[1].startswith(fence):
            end_of_line = text.find("\n", match.end())
            spans.append((begin, len(text) if end_of_line < 0 else end_of_line))
            fence = ""
    return [*spans, (begin, len(text))] if fence else spans


def _without(text: str, spans: Iterable[tuple[int, int]], between: str = "") -> str:
    """Return `text` without these spans, which may lie in one another."""
    kept, position = list[str](), 0
    for begin, end in sorted(spans):
        if begin >= position:
            kept.append(text[position:begin])
        position = max(position, end)
    return between.join([*kept, text[position:]])


def _without_comments(text: str) -> str:
    """Return `text` without XML's comments; of one that is not closed, only the mark goes."""
    code = _code_spans(text)
    spans, position = list[tuple[int, int]](), 0
    while (begin := text.find("<!--", position)) >= 0:
        end = -1 if _is_within(begin, code) else text.find("-->", begin)
        position = begin + len("<!--") if end < 0 else end + len("-->")
        spans.append((begin, position))
    return _without(text, spans)


def _is_within(position: int, spans: Sequence[tuple[int, int]]) -> bool:
    number = bisect_right(spans, (position, len(spans) and spans[-1][1])) - 1
    return number >= 0 and spans[number][0] <= position < spans[number][1]


def without_blocks(text: str, is_whole: Callable[[int, int], bool]) -> str:
    """Return a text of several messages without blocks that programs put into one of them.

    `is_whole` tells of the begin and end of a block whether it is of one message.
    """
    return _without_tags(
        text,
        lambda name, begin, end: (
            not _USERS_TAG.match(text, begin)
            and _is_injected(text, name, begin, _LINE_OR_MESSAGE)
            and is_whole(begin, end)
        ),
    )


def without_injected(text: str) -> str:
    """Return one message without what programs put into it: blocks and comments.

    A block that is not closed reaches to the end, if nothing else stands on its first line.
    """
    text = _without_comments(_USERS_TAG.sub("", text))
    code = _code_spans(text)

    def reaches_to_end(name: str, begin: int, end: int) -> bool:
        is_alone = _INJECTED.match(name) is not None or _ends_line(text, end)
        is_block = _begins(text, begin, _LINE) and _is_injected(text, name, begin, _LINE)
        return is_alone and is_block and not _is_within(begin, code)

    return _without_tags(
        text, lambda name, begin, _: _is_injected(text, name, begin, _LINE), reaches_to_end
    )


def _is_injected(text: str, name: str, begin: int, before: re.Pattern[str]) -> bool:
    if _INJECTED.match(name):
        return True
    return bool(_INJECTED_LINE.match(name)) and _begins(text, begin, before)


def _begins(text: str, position: int, before: re.Pattern[str]) -> bool:
    """Tell whether `before` is all that stands before on the line."""
    begin = max(0, position - _BEFORE_CHARS_MAX)
    begin = text.rfind("\n", begin, position) + 1 or begin
    return before.match(text[begin:position]) is not None


def _ends_line(text: str, position: int) -> bool:
    end = text.find("\n", position)
    return not text[position : len(text) if end < 0 else end].strip()


def without_reasoning(text: str, *, is_open: bool) -> str:
    """Return a model's message without what it only thought.

    `is_open`: the begin or the end of a thought may be missing.
    """
    if channels := list(_CHANNEL.finditer(text)):
        text = _final_channel(text, channels)
    kept, position, depth = list[str](), 0, 0
    for mark in _THOUGHTS.finditer(text):
        if mark["begin"]:
            if depth == 0:
                kept.append(text[position : mark.start()])
                position = mark.start()
            depth += 1
        elif depth == 1 or (depth == 0 and is_open):
            kept = kept if depth else []
            position, depth = mark.end(), 0
        else:
            depth = max(0, depth - 1)
    is_lost = depth > 0 and is_open and _begins(text, position, _LINE)
    return "".join(kept) + ("" if is_lost else text[position:])


def _final_channel(text: str, channels: list[re.Match[str]]) -> str:
    kept = [text[: channels[0].start()]]
    ends = [*(channel.start() for channel in channels[1:]), len(text)]
    for channel, end in zip(channels, ends, strict=True):
        if channel["name"] == "final":
            kept.append(_CHANNEL_END.sub("", text[channel.end() : end]))
    return "".join(kept).strip()


def _without_tags(
    text: str,
    only: Callable[[str, int, int], bool] = lambda *_: True,
    to_end: Callable[[str, int, int], bool] = lambda *_: False,
) -> str:
    """Return `text` without every `<tag>…</tag>` and its content; lone tags stay.

    `only` tells of the name, begin and end of such a block whether it goes; `to_end` of a lone tag
    whether all behind it goes as well.
    """
    open_tags: dict[str, list[tuple[int, int]]] = {}
    spans: list[tuple[int, int]] = []
    for match in _TAG.finditer(text):
        closing, name = match[1], match[2].lower()
        if not closing:
            open_tags.setdefault(name, []).append(match.span())
        elif open_tags.get(name):
            begin, _ = open_tags[name].pop()
            if only(name, begin, match.end()):
                spans.append((begin, match.end()))
    lone = [(name, *span) for name, tags in open_tags.items() for span in tags]
    spans += [(begin, len(text)) for name, begin, end in lone if to_end(name, begin, end)]
    return _without(text, spans, between="\n")
