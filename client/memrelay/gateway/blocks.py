"""Blocks within a text that nobody wrote there: reminders, files, memories, other context.

It does not own our own blocks (`conversation.strip_injected`), nor the lines that a gateway writes
(`scaffolding.py`).

- A block is material of others, with all that it holds. What is left around it is judged.
- Only what is paired is a block. A lone tag, an address or a comparison stays what it is: words.
- Tags that format a word within a sentence take nothing away.
- Time is linear in the text.
"""

import re
from collections.abc import Iterable
from typing import Final

# A tag in backticks is talked about. `first` and `last` tell that nothing else is on its line.
_TAG: Final = re.compile(
    r"(?P<first>^[^\S\n]*)?(?<!`)<(?P<end>/?)(?P<name>[A-Za-z][\w:.-]{0,63})"
    r"(?P<members>(?:\s[^<>]*)?/?)>(?!`)(?P<last>[^\S\n]*$)?",
    re.MULTILINE,
)
_DECLARATION: Final = re.compile(r"^[^\S\n]*<[?!][A-Za-z][^<>]*>", re.MULTILINE)
# Wherever such a tag stands, an agent's harness or a plugin wrote it.
_OF_A_SYSTEM: Final = re.compile(
    r"memor(?:y|ies)|context|remind|recall|notification|environment|instruction|selection"
    r"|transcript|untrusted|metadata|attach|scratchpad|caveat|stdout|stderr"
)
# What wraps the user's words, and no others.
_OF_THE_USER: Final = re.compile(r"(?:user|human)[-_]?(?:query|message|input|prompt|request)")
# At the beginning of a line, these are material whatever follows their end.
_MATERIAL: Final = frozenset(
    """
    article attachment attachments diff document documents email facts file files history
    knowledge log logs output page quote result results snippet source sources system thread
    """.split()
)
_INLINE: Final = frozenset(
    """
    a abbr b bdi bdo big cite code del dfn em font i ins kbd mark q s samp small span strike strong
    sub sup time tt u var
    """.split()
)
_GAP_CHARS_MAX = 16  # of blanks between two blocks on one line


def without_blocks(text: str) -> str:
    """Return a text without the blocks and comments in it."""
    if "<" not in text:
        return text
    text = _DECLARATION.sub("", text)
    tags = list(_TAG.finditer(text))
    ends = _ends(tags)
    kept, position, line_end = list[str](), 0, -1
    for tag in tags:
        if tag.start() < position:
            continue
        if line_end < tag.end():
            found = text.find("\n", tag.end())
            line_end = found if found >= 0 else len(text)
        gap = text[position : tag.start()] if tag.start() - position <= _GAP_CHARS_MAX else "far"
        first = tag["first"] is not None or (position > 0 and not gap.strip())
        end = _block_end(tag, ends.get(tag.start()), first=first, line_end=line_end)
        if end:
            block = text[tag.start() : end]
            kept += text[position : tag.start()], "\n" if "\n" in block else " "
            position = end
    left = "".join([*kept, text[position:]]).strip() if kept else text
    return _without_comments(left)  # a file's unclosed one reaches no further than the file


def unwrap_tags(text: str) -> str:
    """Return a text without tags of plain names; blocks of a system or of files stay as they are.

    A program may wrap its user's question so: as words to keep it is none, but it can be asked.
    """
    return _TAG.sub(lambda tag: tag[0] if _is_material(tag["name"].lower()) else " ", text)


def without_marked(text: str, marks: re.Pattern[str]) -> str:
    """Return a text without what stands between marks, which may be nested.

    A mark with a group that matched is an end. A lone end is taken out; what is not closed reaches
    to the end of the text.
    """
    kept, position, depth = list[str](), 0, 0
    for mark in marks.finditer(text):
        if depth == 0:
            kept.append(text[position : mark.start()])
        ends = any(mark.groupdict().values())
        depth = max(0, depth - 1) if ends else depth + 1
        position = mark.end()
    if depth == 0:
        kept.append(text[position:])
    return "".join(kept).strip()


def _without_comments(text: str) -> str:
    kept, position = list[str](), 0
    while (begin := text.find("<!--", position)) >= 0 and (end := text.find("-->", begin)) >= 0:
        kept.append(text[position:begin])
        position = end + len("-->")
    return "".join([*kept, text[position:]])


def _ends(tags: Iterable[re.Match[str]]) -> dict[int, re.Match[str]]:
    """Return the end tag of each tag that has one, by where the tag begins.

    What a block holds does not end it: the last end tag counts, if several follow one tag.
    """
    opened: dict[str, list[int]] = {}
    closed: dict[str, int] = {}  # the last block of a name, if no tag has begun another since
    found: dict[int, re.Match[str]] = {}
    for tag in tags:
        name = tag["name"].lower()
        waiting = opened.setdefault(name, [])
        if not tag["end"]:
            waiting.append(tag.start())
            closed.pop(name, None)
        elif waiting:
            closed[name] = waiting.pop()
            found[closed[name]] = tag
        elif name in closed:
            found[closed[name]] = tag
    return found


def _block_end(
    tag: re.Match[str], end: re.Match[str] | None, *, first: bool, line_end: int
) -> int | None:
    """Return where the block that a tag begins ends, None if it begins none."""
    name = tag["name"].lower()
    if _OF_THE_USER.fullmatch(name):
        return tag.end()  # the tag goes, what it wraps stays
    if tag["end"] or name in _INLINE:
        return None
    if end is None:
        alone = first and tag["last"] is not None and tag["members"].endswith("/")
        return tag.end() if alone and _is_material(name) else None
    if _OF_A_SYSTEM.search(name) or (first and end["last"] is not None):
        return end.end()
    several_lines = end.start() > line_end
    return end.end() if _is_material(name) and (first or several_lines) else None


def _is_material(name: str) -> bool:
    return "-" in name or "_" in name or name in _MATERIAL or bool(_OF_A_SYSTEM.search(name))
