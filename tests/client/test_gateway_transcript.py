"""The tool that shows a conversation as OpenClaw wrote it: only the caller's, and no other file."""

import json
import os
from pathlib import Path

import pytest

from memrelay import Settings
from tests.client.gateway_scene import CTX, TEA, conversation, founded
from tests.client.tools_scene import CODER, MAIN, QUERY, gateway_of, one_owner
from tests.processes import RunningRelayer

__all__ = ["one_owner"]  # a fixture


class TestTranscript:
    SESSION = "0f1e2d3c-aaaa-bbbb-cccc-000000000001"

    def written(self, folder: Path, *lines: object, agent: str = "main") -> Path:
        """A session's transcript as OpenClaw writes it."""
        path = folder / agent / "sessions" / f"{self.SESSION}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    def said(self, role: str, text: str) -> dict[str, object]:
        content = [{"type": "text", "text": text}]
        return {"type": "message", "id": "1", "message": {"role": role, "content": content}}

    async def test_shows_the_end_of_a_conversation(
        self, shared_relayer: RunningRelayer, tmp_path: Path
    ) -> None:
        """capability 2.7: a memory leads to the transcript that it came from."""
        self.written(
            tmp_path,
            {"type": "session", "id": self.SESSION},
            self.said("user", "too long ago"),
            self.said("user", "What about <b>tea</b>?\nAnd coffee?"),
            self.said("toolResult", "secret output"),
            {"type": "compaction", "summary": "left out"},
            self.said("assistant", "Tea it is."),
        )
        owner = await founded(shared_relayer.url)
        async with gateway_of(owner, transcripts=tmp_path) as gateway:
            await gateway.agent_end(conversation(TEA), {**CTX, "sessionId": self.SESSION})
            assert await gateway.flush(30)
            found = await gateway.call_tool("memory_search", {"query": QUERY}, MAIN)
            [memory] = found.details["memories"]
            for arguments in ({"id": memory["id"]}, {"session_id": self.SESSION}):
                answer = await gateway.call_tool(
                    "memory_transcript", {**arguments, "lines": 2}, MAIN
                )
                assert answer.text.splitlines()[1:] == [
                    "user: `What about &lt;b&gt;tea&lt;/b&gt;? And coffee?`",
                    "assistant: `Tea it is.`",
                ]

    @pytest.mark.parametrize(
        "session",
        ["../main/sessions/x", "..", "/etc/passwd", "a/b", "a\x00b", ".hidden", "", "x" * 200, 7],
    )
    async def test_no_other_file_is_read(
        self, one_owner: Settings, tmp_path: Path, session: object
    ) -> None:
        self.written(tmp_path, self.said("user", "hello"))
        async with gateway_of(one_owner, transcripts=tmp_path) as gateway:
            answer = await gateway.call_tool("memory_transcript", {"session_id": session}, MAIN)
        assert answer.is_error
        assert "hello" not in answer.text

    async def test_another_agents_conversation_is_not_shown(
        self, one_owner: Settings, tmp_path: Path
    ) -> None:
        """capability 2.8: a transcript is the calling agent's own."""
        self.written(tmp_path, self.said("user", "hello"), agent="main")
        async with gateway_of(one_owner, transcripts=tmp_path) as gateway:
            arguments = {"session_id": self.SESSION}
            assert (await gateway.call_tool("memory_transcript", arguments, CODER)).is_error
            assert not (await gateway.call_tool("memory_transcript", arguments, MAIN)).is_error

    @pytest.mark.parametrize("linked", ["file", "sessions", "agent"])
    async def test_links_are_not_followed(
        self, one_owner: Settings, tmp_path: Path, linked: str
    ) -> None:
        path = self.written(tmp_path / "real", self.said("user", "hello"))
        link = {
            "file": path,
            "sessions": path.parent,
            "agent": path.parent.parent,
        }[linked]
        target = link.rename(tmp_path / "elsewhere")
        os.symlink(target, link)
        async with gateway_of(one_owner, transcripts=tmp_path / "real") as gateway:
            arguments = {"session_id": self.SESSION}
            assert (await gateway.call_tool("memory_transcript", arguments, MAIN)).is_error

    async def test_odd_files_do_no_harm(self, one_owner: Settings, tmp_path: Path) -> None:
        path = self.written(tmp_path, {"type": "message"}, [], {"type": "message", "message": 5})
        with path.open("ab") as file:
            file.write(b'\xff{broken\n{"type": "mess')
        arguments = {"session_id": self.SESSION}
        async with gateway_of(one_owner, transcripts=tmp_path) as gateway:
            answer = await gateway.call_tool("memory_transcript", arguments, MAIN)
            assert answer.details["count"] == 0
            path.unlink()
            os.mkfifo(path)
            assert (await gateway.call_tool("memory_transcript", arguments, MAIN)).is_error

    async def test_a_line_that_is_nested_too_deeply_hides_no_other(
        self, one_owner: Settings, tmp_path: Path
    ) -> None:
        path = self.written(tmp_path, self.said("user", "before"))
        with path.open("a") as file:
            file.write("[" * 200_000 + "\n" + json.dumps(self.said("assistant", "after")) + "\n")
        async with gateway_of(one_owner, transcripts=tmp_path) as gateway:
            answer = await gateway.call_tool(
                "memory_transcript", {"session_id": self.SESSION}, MAIN
            )
        assert answer.text.splitlines()[1:] == ["user: `before`", "assistant: `after`"]

    async def test_a_huge_file_is_read_from_its_end(
        self, one_owner: Settings, tmp_path: Path
    ) -> None:
        many = [self.said("user", f"message {n} {'x' * 5000}") for n in range(500)]
        self.written(tmp_path, *many)
        arguments = {"session_id": self.SESSION, "lines": 200}
        async with gateway_of(one_owner, transcripts=tmp_path) as gateway:
            answer = await gateway.call_tool("memory_transcript", arguments, MAIN)
        shown = answer.text.splitlines()
        assert "message 499" in shown[-1]
        assert len(shown) == 201
        assert max(map(len, shown)) < 1100
