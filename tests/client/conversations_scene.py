"""Conversations as other programs write them to files: invented people, real forms.

Words in capitals stand where nothing may be read: tools, reasoning, branches that were left, what
hooks injected.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from memrelay.importing.files import find
from memrelay.importing.reader import QueuedPart, Reading
from tests.client.import_scene import write

BEGUN = 1763632800.0  # 2025-11-20T10:00:00Z
SESSION = "1b2c3d4e-0000-4000-8000-000000000001"


def queued(
    *paths: Path,
    format: str | None = None,
    zone: tzinfo = UTC,
    since: Any = None,
    faults: int = 0,
) -> tuple[list[QueuedPart], list[str], Reading]:
    """Return the parts of conversations in files, the texts of memories, and the reading."""
    told: list[tuple[str, str, str]] = []
    files, _ = find(map(str, paths))
    reading = Reading(
        files, lambda *fault: told.append(fault), format=format, zone=zone, since=since
    )
    texts = [item.entry.draft.text for item in reading.items()]
    assert len(told) == faults, told
    return reading.queue(), texts, reading


def said(*paths: Path, **options: Any) -> list[str]:
    """Return the parts of conversations in files, as a relayer reads them."""
    return [part.text for part in queued(*paths, **options)[0]]


def lines(*values: object) -> str:
    """Return values as JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def zipped(path: Path, folder: Path) -> Path:
    """Return a zip archive of what is in a folder."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
    return path


def node(id: str, parent: str | None, role: str | None = None, **message: Any) -> dict[str, Any]:
    """Return a node of ChatGPT's tree; `text` is short for the usual content."""
    text = message.pop("text", None)
    content = message.pop("content", {"content_type": "text", "parts": [text]})
    told = {"author": {"role": role}, "content": content, "recipient": "all", "weight": 1.0}
    known = None if role is None else {**told, "metadata": {}, "create_time": None, **message}
    return {"id": id, "parent": parent, "children": [], "message": known}


def chat(id: str, current: str | None, nodes: Iterable[dict[str, Any]], **more: Any) -> Any:
    """Return a conversation of ChatGPT's export."""
    mapping = {one["id"]: one for one in nodes}
    for one in mapping.values():
        if one["parent"] in mapping:
            mapping[one["parent"]]["children"].append(one["id"])
    return {"title": "t", "create_time": BEGUN, "mapping": mapping, "current_node": current} | {
        "conversation_id": id,
        **more,
    }


CHAT = chat(
    "c-1",
    "spoken",
    [
        node("root", None),
        node("system", "root", "system", text="SYSTEM", weight=0.0),
        node(
            "profile",
            "system",
            "user",
            content={"content_type": "user_editable_context", "user_profile": "PROFILE"},
            metadata={"is_user_system_message": True},
        ),
        node(
            "hidden",
            "profile",
            "user",
            text="HIDDEN",
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        node("edited", "hidden", "user", text="EDITED AWAY", create_time=BEGUN + 10),
        node("home", "hidden", "user", text="I live in Porto.", create_time=BEGUN + 20),
        node(
            "thought",
            "home",
            "assistant",
            content={"content_type": "thoughts", "thoughts": [{"summary": "THOUGHT"}]},
        ),
        node(
            "call",
            "thought",
            "assistant",
            content={"content_type": "code", "text": "CALL"},
            recipient="web.run",
        ),
        node("tool", "call", "tool", text="TOOL"),
        node("aside", "tool", "assistant", text="COMMENTARY", channel="commentary"),
        node(
            "answer",
            "aside",
            "assistant",
            text="Noted. \ue200cite\ue202turn0search0\ue201",
            channel="final",
            create_time=BEGUN + 30,
        ),
        node(
            "picture",
            "answer",
            "user",
            content={
                "content_type": "multimodal_text",
                "parts": [{"content_type": "image_asset_pointer"}, "My dog is called Kiwi."],
            },
        ),
        node("again", "picture", "assistant", text="REGENERATED AWAY"),
        node("lovely", "picture", "assistant", text="A lovely dog."),
        node(
            "spoken",
            "lovely",
            "user",
            content={
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "audio_transcription", "text": "Ines moved out yesterday."}
                ],
            },
            create_time=BEGUN + 60,
        ),
    ],
)
CHAT_SAID = """\
1. user: I live in Porto.

2. assistant: Noted.

3. user: My dog is called Kiwi.

4. assistant: A lovely dog.

5. user: Ines moved out yesterday."""


def chatgpt(folder: Path, *chats: Any) -> Path:
    """Return the folder of an export of ChatGPT."""
    write(folder / "conversations.json", list(chats or [CHAT]))
    write(folder / "user.json", {"id": "user-x", "email": "ines@example.org"})
    write(folder / "message_feedback.json", [])
    write(folder / "shared_conversations.json", [{"id": "s", "conversation_id": "c-1"}])
    write(folder / "chat.html", "<html><body><script>var jsonData = [];</script></body></html>")
    return folder


CLAUDE_CHAT = {
    "uuid": "k-1",
    "name": "Diet",
    "created_at": "2025-11-20T10:00:00Z",
    "account": {"uuid": "a"},
    "chat_messages": [
        {
            "uuid": "1",
            "sender": "human",
            "text": "I eat no gluten.",
            "content": [{"type": "text", "text": "I eat no gluten."}],
            "created_at": "2025-11-20T10:00:00.123456Z",
            "attachments": [{"file_name": "a.txt", "extracted_content": "ATTACHED"}],
        },
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "No gluten, then.\n```\nTOOL\n```",
            "content": [
                {"type": "thinking", "thinking": "THOUGHT"},
                {"type": "tool_use", "name": "web_search", "input": {"query": "CALL"}},
                {"type": "tool_result", "content": [{"type": "text", "text": "TOOL"}]},
                {"type": "text", "text": "No gluten, then."},
            ],
            "created_at": "2025-11-20T10:00:09Z",
        },
        {
            "uuid": "3",
            "sender": "human",
            "text": "We deploy on Fridays.",
            "content": [],
            "created_at": "2025-11-21T08:00:00Z",
        },
    ],
}


def claude(folder: Path) -> Path:
    """Return the folder of an export of Claude."""
    empty = {"uuid": "k-2", "name": "", "chat_messages": [], "created_at": "2025-11-20T10:00:00Z"}
    write(folder / "conversations.json", [CLAUDE_CHAT, empty])
    memory = (
        "**Work context**\n\nInes leads the kiln team.\n\n**Personal**\n\n- Allergic to latex.\n"
    )
    projects = {"p-1": "Glaze nine is the house glaze."}
    write(
        folder / "memories.json",
        [{"conversations_memory": memory, "project_memories": projects, "account_uuid": "a"}],
    )
    kiln = {
        "uuid": "p-1",
        "name": "Kiln",
        "description": "Firmware of the kiln",
        "prompt_template": "Answer with code first.",
        "is_starter_project": False,
        "docs": [{"filename": "x.md", "content": "DOCUMENT"}],
    }
    starter = {"name": "How to", "description": "STARTER", "prompt_template": "", "docs": []}
    write(folder / "projects.json", [kiln, {**starter, "is_starter_project": True}])
    write(folder / "users.json", [{"uuid": "a", "full_name": "Ines"}])
    return folder


GEMINI_JSON: list[dict[str, Any]] = [
    {
        "header": "Gemini Apps",
        "title": "Prompted and which train goes there?",
        "time": "2025-11-20T10:10:00.000Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": "<p>The <b>Alfa</b> goes there.</p><ul><li>At ten</li></ul>"}],
    },
    {
        "header": "Gemini Apps",
        "title": "Prompted My brother works in Faro. Attached 1 file.",
        "time": "2025-11-20T10:00:00.000Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": "<p>Faro is lovely.</p>"}],
    },
    {"header": "Gemini Apps", "title": "Gave feedback: GOOD", "time": "2025-11-20T09:59:00Z"},
    {"header": "Search", "title": "Searched for SEARCH", "time": "2025-11-20T09:58:00Z"},
    {
        "header": "Gemini 앱",
        "title": "포르투에 살아요",
        "time": "2025-11-19T09:58:00.000Z",
        "products": ["Gemini 앱"],
        "safeHtmlItem": [{"html": "<p>반가워요</p>"}],
    },
]
_CELL = (
    '<div class="outer-cell mdl-cell"><div class="mdl-grid"><div class="header-cell mdl-cell"><p'
    ' class="mdl-typography--title">Gemini Apps<br></p></div><div class="content-cell mdl-cell'
    ' mdl-typography--body-1">{}</div><div class="content-cell mdl-typography--text-right"></div>'
    '<div class="content-cell mdl-cell mdl-typography--caption"><b>Products:</b><br>&emsp;Gemini'
    " Apps<br></div></div></div>\n"
)


def gemini_page(*cells: str) -> str:
    """Return My Activity as HTML, with records as they stand in their cells."""
    head = "<!DOCTYPE html>\n<html><head><title>My Activity</title></head><body>"
    return head + "".join(map(_CELL.format, cells)) + "</body></html>"


GEMINI_HISTORY = {
    "title": "Music",
    "creation_time": "2025-11-18T10:00:00Z",
    "conversation_turns": [
        {"user_turn": {"prompt": "I play the cello.", "turn_index": 0}},
        {"user_turn": {"prompt": "DELETED", "turn_deleted_time": "2025-11-18T10:01:00Z"}},
        {
            "system_turn": {
                "text": [{"data": "Lovely."}],
                "model_thoughts": [{"headline": "THOUGHT"}],
                "turn_last_modified": "2025-11-18T10:00:05Z",
            }
        },
    ],
}


def _code(type: str, content: object, time: str, **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": None,
        "isSidechain": False,
        "type": type,
        "message": {"role": type, "content": content},
        "uuid": f"{type}-{time}",
        "timestamp": f"2025-11-{time}.000Z",
        "sessionId": SESSION,
        **more,
    }


CLAUDE_CODE = lines(
    {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": "QUEUED"},
    _code("user", "We use uv, not pip.", "20T10:00:01"),
    {"type": "attachment", "attachment": {"content": "RECALLED"}, "sessionId": SESSION},
    _code(
        "assistant",
        [
            {"type": "thinking", "thinking": "THOUGHT"},
            {"type": "text", "text": "BETWEEN TOOLS"},
            {"type": "tool_use", "name": "Bash", "input": {"command": "CALL"}},
        ],
        "20T10:00:02",
    ),
    _code("user", [{"type": "tool_result", "content": "TOOL"}], "20T10:00:03"),
    _code("assistant", [{"type": "text", "text": "Switched to uv."}], "20T10:00:04"),
    _code("user", "Caveat: META", "20T10:01:00", isMeta=True),
    _code(
        "user",
        "<command-name>/COMMAND</command-name>\n<command-args>ARGS</command-args>",
        "20T10:01:01",
    ),
    _code("user", "<local-command-stdout>STDOUT</local-command-stdout>", "20T10:01:02"),
    _code(
        "user",
        [
            {
                "type": "text",
                "text": "<system-reminder>REMINDER</system-reminder>\nStaging is Heron.",
            },
            {"type": "text", "text": "<memwal-memories>RECALLED</memwal-memories>"},
            {"type": "text", "text": "[Request interrupted by user for tool use]"},
        ],
        "21T09:00:00",
    ),
    _code("user", "SUB-AGENT", "21T09:00:01", isSidechain=True),
    _code("user", "SUMMARY", "21T09:00:02", isCompactSummary=True),
    _code("user", "NOTICE", "21T09:00:03", origin={"kind": "task-notification"}),
    _code("assistant", [{"type": "text", "text": "ERROR"}], "21T09:00:04", isApiErrorMessage=True),
    {"type": "summary", "summary": "SUMMARY", "leafUuid": "b"},
    {"type": "last-prompt", "lastPrompt": "LAST", "sessionId": SESSION},
)


def _codex(_type: str, _time: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2025-11-20T10:00:0{_time}Z", "type": _type, "payload": payload}


def _input(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


_CODEX_INPUTS = (
    _codex("response_item", "0.5", **_input("user", "# AGENTS.md instructions for /p\n\nAGENTS")),
    _codex("response_item", "0.6", **_input("developer", "RECALLED")),
    _codex(
        "response_item", "0.7", **_input("user", "<environment_context>PLACE</environment_context>")
    ),
    _codex("response_item", "1", **_input("user", "CI runs on ARM.")),
)
CODEX = {
    "items": lines(
        _codex("session_meta", "0", session_id="s-1", cli_version="0.171.0"),
        *_CODEX_INPUTS,
        _codex(
            "event_msg",
            "1",
            type="item_completed",
            item={"type": "UserMessage", "content": [{"type": "text", "text": "CI runs on ARM."}]},
        ),
        _codex(
            "event_msg",
            "2",
            type="item_completed",
            item={"type": "CommandExecution", "aggregated_output": "TOOL"},
        ),
        _codex(
            "event_msg",
            "3",
            type="item_completed",
            item={"type": "AgentMessage", "content": [{"type": "Text", "text": "On ARM."}]},
        ),
    ),
    "events": lines(
        _codex("session_meta", "0", id="s-1", cli_version="0.46.0"),
        *_CODEX_INPUTS,
        _codex("event_msg", "1", type="user_message", message="CI runs on ARM.", kind="plain"),
        _codex("event_msg", "2", type="agent_reasoning", text="THOUGHT"),
        _codex("event_msg", "3", type="agent_message", message="On ARM."),
    ),
    "inputs": lines(
        {"id": "s-1", "timestamp": "2025-11-20T10:00:03Z", "instructions": None, "git": {}},
        {"record_type": "state"},
        *(one["payload"] for one in _CODEX_INPUTS),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "On ARM."}],
        },
    ),
}
GEMINI_CLI = lines(
    {"sessionId": "22aa", "projectHash": "c9", "startTime": "2025-11-20T10:00:00Z", "kind": "main"},
    {"$set": {"messages": [{"id": "0", "type": "user", "content": [{"text": "SET-UP"}]}]}},
    {
        "id": "08",
        "timestamp": "2025-11-20T10:00:00.100Z",
        "type": "user",
        "content": [
            {"text": "<hook_context>RECALLED</hook_context>"},
            {"text": "The key hangs behind the door."},
        ],
    },
    {"id": "56", "timestamp": "2025-11-20T10:00:01Z", "type": "gemini", "content": "REPLACED"},
    {
        "id": "56",
        "timestamp": "2025-11-20T10:00:02Z",
        "type": "gemini",
        "content": "Behind the door.",
        "thoughts": [{"subject": "THOUGHT"}],
    },
)


ODD: tuple[object, ...] = ({}, [], [{}], {"a": []}, 5, None, True, "x", 10**400)


def altered(value: object) -> Iterator[object]:
    """Yield a value with one of its parts replaced, each part by each odd value in turn."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: other} for other in altered(part))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in altered(part))
