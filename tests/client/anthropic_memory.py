"""Anthropic's memory tool on a namespace, beside the tool on files that the package itself has.

`make test-frameworks` runs this file with the real package.
"""

import asyncio
import itertools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from anthropic import Anthropic
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.anthropic import AsyncMemoryTool, MemoryTool
from memrelay.cli import main

NUMBERS = itertools.count()
NOTES = "/memories/notes.md"
CARD = "4111 1111 1111 1111"

# What a model might do, one after the other; each also by the package's own tool.
COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "create", "path": NOTES, "file_text": "one\ntwo\nthree\n"},
    {"command": "create", "path": NOTES, "file_text": "again"},
    {"command": "view", "path": NOTES},
    {"command": "view", "path": NOTES, "view_range": [2, 3]},
    {"command": "view", "path": NOTES, "view_range": [2, -1]},
    {"command": "view", "path": NOTES, "view_range": [9, 12]},
    {"command": "view", "path": "/memories/none.md"},
    {"command": "str_replace", "path": NOTES, "old_str": "two", "new_str": "2\n2"},
    {"command": "str_replace", "path": NOTES, "old_str": "2", "new_str": "3"},
    {"command": "str_replace", "path": NOTES, "old_str": "absent", "new_str": ""},
    {"command": "str_replace", "path": "/memories/none.md", "old_str": "a", "new_str": "b"},
    {"command": "insert", "path": NOTES, "insert_line": 0, "insert_text": "zero\n"},
    {"command": "insert", "path": NOTES, "insert_line": 5, "insert_text": "last"},
    {"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "\n\n"},
    {"command": "insert", "path": NOTES, "insert_line": 99, "insert_text": "x"},
    {"command": "insert", "path": NOTES, "insert_line": -1, "insert_text": "x"},
    {"command": "insert", "path": "/memories/none.md", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": NOTES},
    {"command": "create", "path": "/memories/a/b/c/d.md", "file_text": "deep é"},
    {"command": "create", "path": "/memories/a/big.txt", "file_text": "x" * 1_536},
    {"command": "create", "path": "/memories/.hidden", "file_text": "h"},
    {"command": "create", "path": "/memories/empty", "file_text": ""},
    {"command": "view", "path": "/memories/empty"},
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": "/memories/a"},
    {"command": "str_replace", "path": "/memories/a", "old_str": "a", "new_str": "b"},
    {"command": "rename", "old_path": NOTES, "new_path": "/memories/a/big.txt"},
    {"command": "rename", "old_path": "/memories/none", "new_path": "/memories/other"},
    {"command": "rename", "old_path": NOTES, "new_path": "/memories/new/notes.md"},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/z"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/z/y"},
    {"command": "view", "path": "/memories/z/b/c/d.md"},
    {"command": "view", "path": "/memories/a/b/c/d.md"},
    {"command": "view", "path": "/memories/new/notes.md"},
    {"command": "delete", "path": "/memories/none"},
    {"command": "delete", "path": "/memories"},
    {"command": "delete", "path": "/memories/new/notes.md"},
    {"command": "delete", "path": "/memories/z"},
    {"command": "view", "path": "/memories/z"},
]


@pytest.fixture(scope="module")
def profile(shared_relayer, tmp_path_factory):
    path = tmp_path_factory.mktemp("anthropic") / "profile.json"
    assert main(["init", shared_relayer.url, "--profile", str(path)], {}) == 0
    return path


@pytest.fixture
def namespace():
    return f"files-{next(NUMBERS)}"


@pytest.fixture
def tool(profile, namespace):
    with SyncMemoryClient.from_profile(profile) as client:
        yield MemoryTool(client, namespace=namespace)


def said(tool, **command):
    """What a model is told."""
    try:
        return tool.call(command)
    except ToolError as error:
        return f"error: {error}"


async def asaid(tool, **command):
    try:
        return await tool.call(command)
    except ToolError as error:
        return f"error: {error}"


def without_folder_sizes(text: str) -> str:
    """A folder has the size of its files here, and some of its own in a file system."""
    return re.sub(r"^\S+\t(?=\S+/$|/memories(/a)?$)", "", text, flags=re.MULTILINE)


async def test_a_model_is_told_what_the_packages_own_tool_tells(profile, tool, tmp_path):
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path / "files"))
    async with MemoryClient.from_profile(profile) as client:
        alike = AsyncMemoryTool(client, namespace=f"files-{next(NUMBERS)}")
        for command in COMMANDS:
            expected = without_folder_sizes(said(theirs, **command))
            assert without_folder_sizes(said(tool, **command)) == expected, command
            assert without_folder_sizes(await asaid(alike, **command)) == expected, command
        assert await alike.clear_all_memory() == tool.clear_all_memory() == "All memory cleared"
        assert said(tool, command="view", path="/memories").count("\n") == 1


def test_a_folder_has_the_size_of_its_files(tool):
    said(tool, command="create", path="/memories/a/b.md", file_text="x" * 1_024)
    said(tool, command="create", path="/memories/c.md", file_text="x" * 512)
    lines = said(tool, command="view", path="/memories").splitlines()[1:]
    assert lines == [
        "1.5K\t/memories",
        "1K\t/memories/a/",
        "1K\t/memories/a/b.md",
        "512B\t/memories/c.md",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "notes.md",
        "/etc/passwd",
        "/memoriesx/a",
        "/memories/../etc/passwd",
        "/memories/a/../../b",
        "/memories/./a",
        "/memories/..",
        "/memories/ .. /a",
        "/memories/..\\..\\a",
        "/memories/%2e%2e/a",
        "/memories/%2E%2E%2Fa",
        "/memories/a\n/memories/b",
        "/memories/a\x00b",
        "/memories/" + "a" * 500,
        "",
    ],
)
def test_a_path_that_may_lead_out_of_it_is_refused(tool, namespace, path):
    commands = [
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "x"},
        {"command": "str_replace", "path": path, "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "y"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/z"},
        {"command": "rename", "old_path": "/memories/z", "new_path": path},
    ]
    for command in commands:
        assert said(tool, **command).startswith("error: Path "), command
    assert tool._client.list(namespace=namespace).memories == ()


def test_paths_are_names_of_one_file_each(tool):
    said(tool, command="create", path="/memories//a/e\u0301.md", file_text="x")
    assert "content of" in said(tool, command="view", path="/memories/a/é.md")
    for path in ("/memories/a", "/memories/a/é.md/b", "/memories/a/"):
        assert "already exists" in said(tool, command="create", path=path, file_text="x")
    moved = said(tool, command="rename", old_path="/memories/a", new_path="/memories/a/b")
    assert moved == "error: Cannot rename /memories/a into itself"


def test_a_file_is_found_by_recall_and_keeps_its_history(tool, namespace):
    said(tool, command="create", path=NOTES, file_text="Anna drinks green tea.")
    said(tool, command="str_replace", path=NOTES, old_str="green", new_str="black")
    [found] = tool._client.recall("What does Anna drink?", namespace=namespace).results
    assert found.text == f"{NOTES}\nAnna drinks black tea."
    texts = [one.text for one in tool._client.history(found.id, namespace=namespace).revisions]
    assert texts == [found.text, f"{NOTES}\nAnna drinks green tea."]


def test_a_secret_is_taken_out_and_the_model_is_told(tool):
    answer = said(tool, command="create", path=NOTES, file_text=f"The card is {CARD}.")
    assert answer.endswith("\n1 secret taken out of it.")
    assert CARD not in said(tool, command="view", path=NOTES)


def test_a_file_that_is_too_large_is_refused(tool):
    answer = said(tool, command="create", path=NOTES, file_text="x" * 60_001)
    assert answer == "error: The file would be too large: at most 60000 bytes."
    said(tool, command="create", path=NOTES, file_text="x" * 60_000)
    answer = said(tool, command="insert", path=NOTES, insert_line=0, insert_text="y")
    assert "too large" in answer


def test_a_file_can_be_changed_more_often_than_a_memory_has_revisions(tool):
    said(tool, command="create", path=NOTES, file_text="0")
    for number in range(1, 103):
        command = {"old_str": str(number - 1), "new_str": str(number)}
        assert "edited" in said(tool, command="str_replace", path=NOTES, **command)
    assert said(tool, command="view", path=NOTES).endswith("\t102")


async def test_of_two_writers_neither_loses_what_it_wrote(profile, namespace):
    async with MemoryClient.from_profile(profile) as one, MemoryClient.from_profile(profile) as two:
        tools = [AsyncMemoryTool(client, namespace=namespace) for client in (one, two)]
        await asaid(tools[0], command="create", path=NOTES, file_text="")
        marks = [f"{n}-{k}" for k in range(3) for n in range(2)]
        answers = await asyncio.gather(
            *(
                asaid(
                    tools[int(mark[0])],
                    command="insert",
                    path=NOTES,
                    insert_line=0,
                    insert_text=mark,
                )
                for mark in marks
            )
        )
        text = await asaid(tools[0], command="view", path=NOTES)
        kept = sorted(line.split("\t")[1] for line in text.splitlines()[1:] if line[-1] != "\t")
        done = [m for m, told in zip(marks, answers, strict=True) if told.endswith("edited.")]
        assert kept == sorted(done)
        assert done


async def test_one_of_two_that_make_a_file_at_once_has_made_it(profile, namespace):
    async with MemoryClient.from_profile(profile) as one, MemoryClient.from_profile(profile) as two:
        tools = [AsyncMemoryTool(client, namespace=namespace) for client in (one, two)]
        for number in range(5):
            path = f"/memories/{number}"
            answers = await asyncio.gather(
                *(
                    asaid(tool, command="create", path=path, file_text=f"by {n}")
                    for n, tool in enumerate(tools)
                )
            )
            won = [n for n, answer in enumerate(answers) if answer.startswith("File created")]
            assert len(won) == 1, answers
            shown = await asaid(tools[0], command="view", path=path)
            assert shown.endswith(f"by {won[0]}")
        assert len((await one.list(namespace=namespace)).memories) == 5


def test_a_relayer_that_is_away_is_told_in_plain_words(profile, namespace):
    with SyncMemoryClient.from_profile(profile, attempts_max=1) as client:
        tool = MemoryTool(client, namespace=namespace)
        said(tool, command="view", path="/memories")
        client._base = "http://127.0.0.1:1"
        answer = said(tool, command="view", path="/memories")
    assert answer == "error: The memory cannot be reached right now; go on without it."


class _Claude(BaseHTTPRequestHandler):
    """A model that views its memory, writes it, and is done."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(body)
        uses = [
            {"command": "view", "path": "/memories"},
            {"command": "create", "path": NOTES, "file_text": "Coffee."},
        ]
        turn = len(self.asked) - 1  # the package sends what is new; the API keeps the rest
        content = (
            [{"type": "tool_use", "id": f"toolu_{turn}", "name": "memory", "input": uses[turn]}]
            if turn < len(uses)
            else [{"type": "text", "text": "Noted."}]
        )
        answer = {
            "id": f"msg_{turn}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if turn < len(uses) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""


def test_the_packages_runner_uses_it(tool):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Claude)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with Anthropic(base_url=url, api_key="x") as claude:
            runner = claude.beta.messages.tool_runner(
                model="claude-sonnet-5-5",
                max_tokens=100,
                messages=[{"role": "user", "content": "I like coffee."}],
                tools=[tool],
            )
            last = runner.until_done()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert last.content[0].text == "Noted."
    assert _Claude.asked[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    [result] = _Claude.asked[-1]["messages"][-1]["content"]
    assert "File created successfully" in str(result["content"])
    assert said(tool, command="view", path=NOTES).endswith("Coffee.")
