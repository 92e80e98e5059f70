"""A conversation taken apart: messages, who wrote them, and their sentences.

It does not own which sentence is worth keeping (`judge.py`), nor what is done with the messages.

- A message is read by itself: what becomes of it does not depend on the messages around it, so the
  same message sent again in another window yields the same sentences.
- Quoted lines, code, tool output and XML blocks are material of others and yield no sentence.
- What was never said in the conversation is not heard: messages of tools and systems, memories that
  were injected, and the files that an agent is started with.
- In a numbered part only the first line says who speaks: what a tool returned may look like more.
- Time is linear in the text.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from relayer.extraction.refused import orders_the_reader, takes_over

Role = Literal["user", "assistant", "other", "unknown"]


@dataclass(frozen=True)
class Message:
    """One message: `speaker` is a person's name if the text gave one, else empty."""

    role: Role
    speaker: str
    text: str


_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "human": "user",
    "benutzer": "user",
    "nutzer": "user",
    "me": "user",
    "assistant": "assistant",
    "assistent": "assistant",
    "ai": "assistant",
    "ki": "assistant",
    "ai_assistant": "assistant",
    "bot": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "system": "other",
    "developer": "other",
    "tool": "other",
    "function": "other",
    "observation": "other",
    "tool_call": "other",
    "tool_output": "other",
    "tool_response": "other",
    "tool_result": "other",
    "tool_results": "other",
    "function_call": "other",
    "function_output": "other",
    "function_result": "other",
    "system_message": "other",
    "system_prompt": "other",
    "system_reminder": "other",
    "developer_message": "other",
    "assistant_message": "assistant",
    "user_message": "user",
}
_SYLLABLES: Final = frozenset(["Ai", "Ki"])  # of names, too: Ai Weiwei is a person
# Words that open a line with a colon without being anybody's name.
_NOT_NAMES: Final = re.compile(
    "notes?|todo|fixme|warning|important|deadline|date|time|subject|re|fwd?|ps|nb|update|edit"
    "|example|summary|decisions?|results?|reason|budget|address|phone|e-?mail|location|version"
    "|status|question|answer|error|info|debug|output|input|title|name|goal|action|reminder|hint"
    "|tip|remember|plan|contact|see|https?|web|search|messages?|hinweis|wichtig|achtung|frist|termin|datum|betreff"
    "|beispiel|frage|antwort|ergebnis|ziel|merke|adresse|telefon|aufgabe|grund",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"(?:\A|\n[ \t]*\n)[ \t]*(\d{1,5})\. ")
_LABEL: Final = re.compile(
    r"[ \t]*(?:\*\*|\[|<)?([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?)(?:\*\*|\]|>)?"
    r"(?: \((user|assistant)\))?:(?:\*\*)?[ \t]+",
    re.IGNORECASE,
)


# What a message begins with that is a file an agent is started with, such as `# SOUL.md`.
_BOOT_FILE: Final = re.compile(
    r"[^\w\n]{0,8}(?:(?:file|contents? of)[: ]{1,2})?(?:[\w.~-]{0,64}/){0,12}"
    r"(?:AGENTS|BOOT|BOOTSTRAP|CLAUDE|GEMINI|HEARTBEAT|IDENTITY|MEMORY|SOUL|TOOLS|USER)\.md"
    r"[^\w\n]{0,8}(?:\n|\Z)"
)


def heard(text: str) -> list[Message]:
    """Return the messages of `text` that facts may come from.

    One whose author orders its reader to break rules is left out whole: its other sentences are
    what it wants stored. Where only quotes or single sentences do, these are left out.
    """
    said = [
        replace(message, text=_without_orders(message.text))
        for message in messages(_without_injected(text))
        if message.role != "other" and not _BOOT_FILE.match(message.text)
    ]
    return [message for message in said if message.text]


def _without_orders(text: str) -> str:
    if not orders_the_reader(text):
        return text
    if takes_over(_without_quotes(_without_code(text))) or takes_over(own_words(text)):
        return ""
    pieces = _PIECE.findall(own_words(text))
    return "".join(piece for piece in pieces if not orders_the_reader(piece)).strip()


def transcript(said: Sequence[Message]) -> str:
    """Return messages as a numbered list with what is known of who wrote them.

    Lines after a message's first are indented, so that none of them passes for another message.
    """
    lines = [_labelled_text(message) for message in said]
    if len(lines) < 2:
        return "".join(lines)
    return "\n\n".join(f"{n}. {line}" for n, line in enumerate(lines, start=1))


def _labelled_text(message: Message) -> str:
    text = message.text.replace("\n", "\n  ")
    if message.role == "unknown":
        return text
    who = f"{message.speaker} ({message.role})" if message.speaker else message.role
    return f"{who}: {text}"


def messages(text: str) -> list[Message]:
    """Return the messages of `text`.

    Read are the numbered format (`1. <message>`, blank line, `2. <message>`), lines that begin
    with a role or a name and a colon, and plain text, which is one message of unknown role. A part
    without a label goes on in the role of the part before it.
    """
    found: list[Message] = []
    role: Role = "unknown"
    text = text.replace("\r\n", "\n")
    parts = _numbered(text)
    for part in parts or [text]:
        speaker = ""
        for label, piece in _labelled(part, numbered=bool(parts)):
            if label:
                word, _, kind = label.partition("|")
                known = _role(word)
                role = _ROLES[kind.casefold()] if kind else known or "user"
                speaker = "" if known else word
            elif piece.strip() and role != "unknown" and found:
                speaker = found[-1].speaker
            if piece.strip():
                found.append(Message(role, speaker, piece.strip()))
    return found


def _numbered(text: str) -> list[str]:
    """Return the parts of the numbered format, none in another; numbers must count up from 1."""
    starts: list[tuple[int, int]] = []
    for match in _NUMBER.finditer(text):
        if int(match[1]) == len(starts) + 1:
            starts.append(match.span())
    if not starts or text[: starts[0][0]].strip():
        return []
    ends = [begin for begin, _ in starts[1:]] + [len(text)]
    return [text[begin:end] for (_, begin), end in zip(starts, ends, strict=True)]


def _labelled(part: str, *, numbered: bool) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for each run of lines under one label; the first label may be empty."""
    label, lines, named = "", list[str](), True
    for number, line in enumerate(part.split("\n")):
        match = None if numbered and number else _LABEL.match(line)
        if match and (match[2] or _is_label(match[1], named=named)):
            yield label, "\n".join(lines)
            label, lines = f"{match[1]}|{match[2] or ''}", [line[match.end() :]]
        else:
            lines.append(line)
            named = named and number > 0  # names count where the first line gave one
    yield label, "\n".join(lines)


def _is_label(word: str, *, named: bool) -> bool:
    """Tell whether `word` before a colon says who speaks: a role, or a name where they are used."""
    if _key(word) in _ROLES:
        return True
    return named and word.istitle() and not _NOT_NAMES.fullmatch(word.partition(" ")[0])


def _role(word: str) -> Role | None:
    """Return whose word before a colon is, if it is a role or begins with one: no person is called
    Tool Usage."""
    if (known := _ROLES.get(_key(word))) is not None:
        return known
    first = word.replace("_", " ").partition(" ")[0]
    role = None if first in _SYLLABLES else _ROLES.get(first.casefold())
    return None if role == "user" else role


def _key(word: str) -> str:
    return word.casefold().replace(" ", "_")


_CODE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,63})(?:\s[^<>]*)?>")
_ANY_TAG: Final = re.compile("")
_INLINE: Final = re.compile(
    r"<(a|b|code|em|i|kbd|mark|s|small|span|strong|sub|sup|u)(?:\s[^<>]*)?>([^<>\n]*)</\1>",
    re.IGNORECASE,
)
_INLINE_DEPTH_MAX: Final = 3
_INJECTED: Final = re.compile(r"[\w-]*memor(?:y|ies)\b")  # what memory plugins wrap memories in
_OUTPUT_LINE: Final = re.compile(
    r"\s*(?:>|\$ |#!|>>> |\+\+\+ |--- |@@ |[{}\[\]|]|Traceback |File \"|at [\w.$]+\("
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|FAILED|PASSED)\b"
    r"|[^{}\n]{0,80}\{\s*\"[^\"\n]{1,64}\"\s*:"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\d+ (?:passed|failed)\b|[\w.-]+@[\w.-]+:\S*[$#] )"
)
_ROLE_LINE: Final = re.compile(
    rf"^[ \t]*(?:\d{{1,5}}\. )?(?:\*\*)?(?:{'|'.join(_ROLES).replace('_', '[ _]')})(?:\*\*)?:",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBERED_LINE: Final = re.compile(r"^[ \t]*(\d{1,5})\. ", re.MULTILINE)
_PIECE: Final = re.compile(r"[^.!?\n]*[.!?\n]+|[^.!?\n]+")
_SYMBOLS: Final = re.compile(r"[{}\[\]<>=;|\\$#&^~`]")


def own_words(text: str) -> str:
    """Return `text` without code blocks, XML blocks, quoted lines and output of tools."""
    text = _without_code(text)
    for _ in range(_INLINE_DEPTH_MAX):
        text = _INLINE.sub(r"\2", text)
    text = _without_tags(text, _ANY_TAG)
    return "\n".join("" if _is_output(line) else line for line in text.split("\n"))


def _without_quotes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(">"))


def _without_code(text: str) -> str:
    """Return `text` without fenced blocks; one that is never closed reaches to the end."""
    kept, position, fence = list[str](), 0, ""
    for match in _CODE.finditer(text):
        if not fence:
            kept.append(text[position : match.start()])
            fence = match[1]
        elif match[1].startswith(fence):
            end_of_line = text.find("\n", match.end())
            position, fence = (len(text) if end_of_line < 0 else end_of_line), ""
    return "".join(kept) if fence else "".join(kept) + text[position:]


def _without_injected(text: str) -> str:
    """Return `text` without injected memories; a block across messages is none.

    Memories may be a numbered list, which begins with 1; the next message does not.
    """
    roles = [match.start() for match in _ROLE_LINE.finditer(text)]
    numbers = [(match.start(), match[1]) for match in _NUMBERED_LINE.finditer(text)]

    def in_one_message(begin: int, end: int) -> bool:
        role, number = bisect_left(roles, begin), bisect_left(numbers, (begin, ""))
        crossed = any(at < end for at in roles[role : role + 1])
        return not crossed and all(at >= end or n == "1" for at, n in numbers[number : number + 1])

    return _without_tags(text, _INJECTED, in_one_message)


def _without_tags(
    text: str, names: re.Pattern[str], only: Callable[[int, int], bool] = lambda *_: True
) -> str:
    """Return `text` without every `<tag>…</tag>` of these names and its content; lone ones stay.

    `only` tells of the begin and end of such a block whether it goes.
    """
    open_tags: dict[str, list[int]] = {}
    spans: list[tuple[int, int]] = []
    for match in _TAG.finditer(text):
        closing, name = match[1], match[2].lower()
        if not names.match(name):
            continue
        if not closing:
            open_tags.setdefault(name, []).append(match.start())
        elif open_tags.get(name):
            begin = open_tags[name].pop()
            if only(begin, match.end()):
                spans.append((begin, match.end()))
    kept, position = list[str](), 0
    for begin, end in sorted(spans):
        if begin >= position:
            kept.append(text[position:begin])
        position = max(position, end)
    return "\n".join([*kept, text[position:]])


def _is_output(line: str) -> bool:
    return bool(_OUTPUT_LINE.match(line)) or (
        len(line) > 20 and len(_SYMBOLS.findall(line)) * 8 > len(line)
    )


# Lower case, without the last full stop; single letters too, alone or dotted (z. B., e.g., U.S.).
_ABBREVIATION: Final = re.compile(
    "[djms]r|mrs|ms|prof|st|vs|nr|etc|inc|ltd|corp|dept|approx|est|ca|bzw|usw|evtl|ggf|inkl|exkl"
    "|abs|str|tel|bspw|sog|vgl|zzgl|al|resp|geb|hr|fr|dipl|ing|jan|feb|mar|apr|jun|jul|aug|sept?"
    "|oct|okt|nov|dec|dez|[^\\W\\d_](?:\\.[^\\W\\d_])*"
)
_BEFORE_NUMBER: Final = re.compile("no|fig|max|min|vol|art|pp")
_MONTHS: Final = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
)
_END: Final = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]*_]*(?=\s|\Z)|[。！？؟।॥។။]+[」』”）]*")
_LAST_WORD: Final = re.compile(r"(\S+)\Z")
_GOES_ON: Final = re.compile(rf"\s+(?:[a-zà-öø-ÿ]|(?:{_MONTHS}|Quartal|Stock)\b)")
_BULLET: Final = re.compile(r"\s*(?:[-*•–]|\d{1,2}[.)]|#{1,6})\s+")


def sentences(text: str) -> list[str]:
    """Return the sentences of `text` in order, without bullets; line breaks inside are blanks.

    Abbreviations, ordinals, times, versions and file names keep their full stops.
    """
    found = []
    for paragraph in _paragraphs(text):
        begin = 0
        for match in _END.finditer(paragraph):
            if _ends_sentence(paragraph, begin, match):
                found.append(paragraph[begin : match.end()].strip())
                begin = match.end()
        found.append(paragraph[begin:].strip())
    return [sentence for sentence in found if sentence]


def _paragraphs(text: str) -> Iterator[str]:
    """Yield lines of prose; a line that was only wrapped is joined to the one before it."""
    current = ""
    for line in text.split("\n"):
        bullet = _BULLET.match(line)
        wrapped = current and not bullet and line.strip() and _wrapped(current, line.strip())
        if wrapped:
            current += " " + line.strip()
        else:
            if current:
                yield current
            current = line[bullet.end() :].strip() if bullet else line.strip()
    if current:
        yield current


def _wrapped(before: str, line: str) -> bool:
    if before[-1] in ".!?…:。！？؟।॥។။":
        return False
    return line[0].islower() or len(before) >= 60


def _ends_sentence(paragraph: str, begin: int, match: re.Match[str]) -> bool:
    if match.group()[0] != ".":
        return True
    # Only the last characters can hold the word; without the bound this would be quadratic.
    word = _LAST_WORD.search(paragraph, max(begin, match.start() - 40), match.start())
    if word is None:
        return False
    last = word[1].lstrip("(\"'„“«[*_").casefold()
    following = paragraph[match.end() : match.end() + 2].strip()
    if _ABBREVIATION.fullmatch(last) or (_BEFORE_NUMBER.fullmatch(last) and following.isdigit()):
        return not following
    if last.isdigit() and len(last) <= 2:  # "am 3. Mai", but also "we were 3. Then …"
        return not _GOES_ON.match(paragraph, match.end())
    return True
