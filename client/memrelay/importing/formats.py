"""In which format a file holds memories or conversations, and reading it.

It does not own which files are read (`files.py`), or the formats themselves: Markdown
(`markdown.py`), JSON records (`records.py`, `memoryclaw.py`, `graph.py`), pages (`pages.py`),
conversations (`chatgpt.py`, `claude.py`, `gemini.py`, `session_logs.py`).

- A file tells its format by its content first, then by its name. What tells none is not guessed at:
  it is named for what it looks like (`advice.py`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, tzinfo
from pathlib import PurePosixPath
from typing import Any, Final, TextIO

from memrelay.importing import (
    advice,
    chatgpt,
    claude,
    gemini,
    graph,
    json_stream,
    markdown,
    memoryclaw,
    records,
    session_logs,
    workspace,
)
from memrelay.importing.conversations import Conversation
from memrelay.importing.drafts import (
    NESTED,
    SUMMARY,
    Fault,
    ImportItem,
    Omission,
    check_draft,
    source_of,
)
from memrelay.importing.shapes import first_lines, shape_of
from memrelay.importing.sources import File, text_of
from memrelay.models import Draft
from memrelay.pages import is_page, read_page

CONVERSATIONS: Final = (
    "chatgpt",
    "claude",
    "gemini",
    "claude-code",
    "codex",
    "gemini-cli",
    "transcript",
)
FORMATS: Final = (
    "memrelay",
    "openclaw",
    "hermes",
    "memsearch",
    "memoryclaw",
    "mem0",
    "memwal",
    "mcp-memory",
    *CONVERSATIONS,
    "markdown",
    "text",
    "jsonl",
)
UNKNOWN: Final = ""  # the format of a file that tells none

JSON_SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson"})
_MARKDOWN_SUFFIXES: Final = frozenset({".md", ".markdown"})
_PAGE_LINE_CHARS_MAX: Final = 2 << 20  # a text of 1 MiB, or metadata

# The first whose members an object has tells its format.
_MEMBERS: Final = (
    ("chatgpt", {"mapping", "create_time"}),
    ("chatgpt", {"mapping", "current_node"}),
    ("claude", {"chat_messages"}),
    ("claude", {"conversations_memory"}),
    ("claude", {"prompt_template", "name"}),
    ("gemini", {"conversation_turns"}),
    ("gemini", {"title", "time", "header"}),
    ("gemini", {"title", "time", "products"}),
    ("gemini-cli", {"sessionId", "projectHash"}),
    ("mcp-memory", {"entities", "relations"}),
    ("transcript", {"role", "content"}),
    ("transcript", {"messages"}),
    ("mem0", {"memory"}),
    ("jsonl", {"text", "kind"}),
    ("memwal", {"text", "blob_id"}),
    ("jsonl", {"text"}),
)
_SESSIONS: Final = {
    "claude-code": session_logs.claude_code,
    "codex": session_logs.codex,
    "gemini-cli": session_logs.gemini_cli,
}

Content = ImportItem | Conversation


def format_of(file: File, head: bytes | None = None) -> str:
    """Return the format of a file, from its content and name; `UNKNOWN` if it tells none.

    `head` is its beginning, if that was read already.
    """
    head = file.head() if head is None else head
    text = text_of(head)
    if file.suffix in JSON_SUFFIXES or text.lstrip()[:1] in {"{", "["}:
        return _format_of_json(file, text)
    if file.suffix in _MARKDOWN_SUFFIXES:
        return "memrelay" if is_page(text) else _format_of_markdown(file, text)
    if advice.is_page_of_gemini(file, text):
        return "gemini"
    return UNKNOWN if advice.describe(file, head) else "text"


def _format_of_json(file: File, head: str) -> str:
    if file.suffix == ".json" and file.inside.parent.name == "semantic":
        return "memoryclaw"
    shape = shape_of(head)
    for line in (*first_lines(head), shape.top):  # the first line may be longer than the beginning
        if found := _format_of_line(line):
            return found
    if advice.is_of_deepseek(shape.top):
        return UNKNOWN
    for members in (shape.top, shape.item):
        if found := _format_of_members(members):
            return found
    if shape.top and not shape.top.keys() & {"results", "memories", "text"}:
        return UNKNOWN
    return "jsonl"


def _format_of_line(line: Mapping[str, Any]) -> str:
    """Return the format of which a line of a session or a graph is; nothing for other lines."""
    is_codex = line.get("type") == "session_meta" and "payload" in line
    if is_codex or {"instructions", "git"} <= line.keys():
        return "codex"
    if "sessionId" in line and "projectHash" in line:
        return "gemini-cli"
    is_typed = "sessionId" in line and "type" in line
    if is_typed or "leafUuid" in line or {"parentUuid", "isSidechain"} <= line.keys():
        return "claude-code"
    if line.get("type") in ("entity", "relation") and ("name" in line or "from" in line):
        return "mcp-memory"
    is_message = line.get("type") == "message" and "message" in line
    return "transcript" if is_message or {"role", "content"} <= line.keys() else ""


def _format_of_members(members: dict[str, str]) -> str:
    """Return the format of an object with such members; nothing for one that tells none."""
    for format, names in _MEMBERS:
        if names <= members.keys():
            return format
    return ""


def _format_of_markdown(file: File, head: str) -> str:
    front, _, _ = markdown.front_matter(head)
    name, folder = file.inside.name, file.inside.parent.name
    if {"timestamp", "summary"} <= front.keys() or folder == "semantic":
        return "memoryclaw"
    if _is_log(head) or workspace.has_summary(head) or folder == ".memsearch":
        return "memsearch"
    if name in {"MEMORY.md", "USER.md"}:
        # One entry alone has no sign around it; nor has it a heading, as others' files have.
        is_alone = folder == "memories" and "\n#" not in f"\n{head}"
        return "hermes" if is_alone or markdown.has_separators(head) else "openclaw"
    return "openclaw" if folder == "memory" and "description" not in front else "markdown"


def _is_log(head: str) -> bool:
    return "<!-- session:" in head


def has_logs(files: Iterable[File]) -> bool:
    """Return whether a file is a log of memsearch, which a summary beside it may repeat."""
    return any(_is_log(text_of(file.head())) for file in files if file.suffix in _MARKDOWN_SUFFIXES)


def read(
    file: File, format: str, *, zone: tzinfo = UTC, with_logs: bool = False
) -> Iterator[Content]:
    """Yield what a file holds; a file that cannot be read at all is one fault.

    Times without an offset are those of `zone`. With the logs that they sum up, summaries are left
    out.
    """
    try:
        yield from _read(file, format, zone, with_logs)
    except OSError as error:
        yield Fault("1", f"it cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        yield Fault("1", "not UTF-8 text")
    except ValueError as error:
        yield Fault("1", str(error))
    except RecursionError:
        yield Fault("1", NESTED)


def _read(file: File, format: str, zone: tzinfo, with_logs: bool) -> Iterator[Content]:
    if format == UNKNOWN:
        raise ValueError(advice.advise(file))
    if format in _SESSIONS:
        return _session(file, format, zone)
    if format in {"chatgpt", "claude", "gemini", "transcript"}:
        return _export(file, format, zone)
    if format == "mcp-memory":
        return _graph(file)
    if format in records.READERS and _is_lines(file):
        return records.json_lines(file, format=format, zone=zone)
    if format == "memrelay":
        return _pages(file, zone)
    text = file.text()
    if format in records.READERS:
        return records.json_list(text, file.name, format=format, zone=zone)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if format == "text":
        return _paragraphs(text, file.name)
    if format == "memoryclaw":
        return _memoryclaw(text, file, zone)
    if format == "hermes":
        return markdown.hermes_entries(text, file.name)
    return _markdown(text, file, format, zone, with_logs)


def _session(file: File, format: str, zone: tzinfo) -> Iterator[Content]:
    faults: list[Fault] = []
    reader = _SESSIONS[format]
    with file.text_stream() as stream:
        yield from reader(_session_values(stream, faults), file.inside.stem, zone)
    yield from faults


def _session_values(stream: TextIO, faults: list[Fault]) -> Iterator[dict[str, Any]]:
    """Yield the objects of lines, or the one object that is spread over lines."""
    bad: Fault | None = None  # the last line of a session that goes on may be half written
    number = 0
    for number, line in enumerate(_lines(stream, json_stream.VALUE_CHARS_MAX), 1):
        try:
            value = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            if number == 1 and line.strip() == "{":
                rest = stream.read(json_stream.VALUE_CHARS_MAX)
                whole = _parse(line + rest)
                yield from [whole] if isinstance(whole, dict) else []
                return
            faults += [bad] if bad is not None else []
            bad = Fault(str(number), "not JSON")
            continue
        if isinstance(value, dict):
            yield value
    if bad is not None and bad.place != str(number):
        faults.append(bad)


def _export(file: File, format: str, zone: tzinfo) -> Iterator[Content]:
    """Yield what the values of an export give, as they are read."""
    if format == "gemini" and advice.is_page_of_gemini(file, text_of(file.head())):
        yield from gemini.activity_page(file.text(), zone)
        return
    activity, messages, number = gemini.Activity(), list[Any](), 0
    with file.text_stream() as stream:
        try:
            for number, value in enumerate(json_stream.values(stream), 1):
                listed = value.get("conversations") if isinstance(value, dict) else None
                for one in listed if isinstance(listed, list) else [value]:
                    if format == "gemini" and not _has(one, "conversation_turns"):
                        activity.add(one, zone)
                    elif format == "transcript" and isinstance(one, dict) and "messages" not in one:
                        messages.append(one)
                    else:
                        yield from _read_value(one, f"#{number}", file, format, zone)
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            yield Fault(f"#{number + 1}", f"{error}; the rest was not read")
    yield from activity.conversations()
    yield from session_logs.transcript(messages, "1", file.inside.stem, zone)


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


def _read_value(value: Any, place: str, file: File, format: str, zone: tzinfo) -> Iterator[Content]:
    """Yield what one value of an export gives."""
    if format == "chatgpt":
        yield from chatgpt.conversation(value, place, zone)
    elif format == "gemini":
        yield from gemini.history(value, place, zone)
    elif format == "transcript":
        yield from session_logs.transcript(value, place, f"{file.inside.stem}{place}", zone)
    elif _has(value, "conversations_memory"):
        yield from claude.memories(value, file.name, zone)
    elif _has(value, "prompt_template"):
        yield from claude.project(value, place, file.name, zone)
    else:
        yield from claude.conversation(value, place, zone)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("not JSON") from None


def _graph(file: File) -> Iterator[Content]:
    with file.text_stream() as stream:
        if not first_lines(text_of(file.head())):
            yield from graph.memories(_parse(file.text()), "1", file.name)
            return
        for number, line in enumerate(_lines(stream, _PAGE_LINE_CHARS_MAX), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield Fault(str(number), "not JSON")
            else:
                yield from graph.memories(value, str(number), file.name)


def _is_lines(file: File) -> bool:
    if file.suffix in JSON_SUFFIXES - {".json"}:
        return True
    first, _, rest = text_of(file.head()).partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def _pages(file: File, zone: tzinfo) -> Iterator[ImportItem]:
    with file.text_stream() as stream:
        for line, value in read_page(_lines(stream, _PAGE_LINE_CHARS_MAX)):
            yield records.record(value, str(line), file.name, format="jsonl", zone=zone)


def _lines(stream: TextIO, chars_max: int) -> Iterator[str]:
    while line := stream.readline(chars_max + 1):
        if len(line) > chars_max:
            raise ValueError(f"a line is longer than {chars_max >> 20} MiB; the rest was not read")
        yield line


def _memoryclaw(text: str, file: File, zone: tzinfo) -> Iterator[ImportItem]:
    if file.suffix == ".json":
        return memoryclaw.json_facts(text, file.name)
    front, _, _ = markdown.front_matter(text)
    reader = memoryclaw.episode if "timestamp" in front else memoryclaw.facts
    return reader(text, file.name, zone=zone)


def _markdown(
    text: str, file: File, format: str, zone: tzinfo, with_logs: bool
) -> Iterator[ImportItem]:
    name = PurePosixPath(file.name)
    is_daily = name.stem[:4].isdigit()
    kind = "episodic" if is_daily and format in {"memsearch", "openclaw"} else None
    if format == "memsearch" and workspace.has_summary(text):
        logs, places = workspace.strip_summaries(text)
        if with_logs or _is_log(logs):
            text = logs
            yield from (Omission(str(place), SUMMARY) for place in places)
        else:
            kind = "summary"
    user = name.parent.name if name.parent.parent.name == "users" else None
    tags = (f"user:{user}",) if user and format == "openclaw" else ()
    yield from markdown.entries(text, file.name, kind=kind, zone=zone, tags=tags)


def _paragraphs(text: str, file: str) -> Iterator[ImportItem]:
    number = 1
    for paragraph in re.split(r"\n[^\S\n]*\n", text):
        if paragraph.strip():
            line = number + len(paragraph[: -len(paragraph.lstrip())].split("\n")) - 1
            yield check_draft(str(line), Draft(text=paragraph.strip(), source=source_of(file)))
        number += paragraph.count("\n") + 2
