"""The end of a conversation, from the transcripts that a gateway keeps on disk.

It does not own their format, which is OpenClaw's: one JSON object a line, messages among them.

- Only files below the agent's own folder are read, by a strict name, through no symbolic link.
- What is read and returned is bounded.
"""

import json
import os
import re
import stat
from collections import deque
from pathlib import Path

from memrelay.gateway.host_events import ASSISTANT, USER, Message, read_messages

_READ_BYTES_MAX = 1024 * 1024  # of the end of the file
_MESSAGE_CHARS_MAX = 1_000
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_AGENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Transcripts:
    """The transcripts of a gateway's agents: `FOLDER/AGENT/sessions/SESSION.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, agent: str, session: str, lines: int) -> list[Message] | None:
        """Return the last messages of a session, oldest first; None if there is no such file."""
        if not _AGENT.fullmatch(agent) or not _SESSION.fullmatch(session):
            return None
        data = self._end_of(agent, session)
        if data is None:
            return None
        said: deque[Message] = deque(maxlen=lines)
        for line in data.splitlines():
            said.extend(_messages(line))
        return list(said)

    def _end_of(self, agent: str, session: str) -> bytes | None:
        opened: list[int] = []
        try:
            # Each step is opened below the one before, so that none can be swapped for a link.
            opened.append(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY))
            for name in (agent, "sessions"):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                opened.append(os.open(name, flags, dir_fd=opened[-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            opened.append(os.open(f"{session}.jsonl", flags, dir_fd=opened[-1]))
            status = os.fstat(opened[-1])
            if not stat.S_ISREG(status.st_mode):
                return None
            start = max(0, status.st_size - _READ_BYTES_MAX)
            return os.pread(opened[-1], _READ_BYTES_MAX, start)
        except OSError:
            return None
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _messages(line: bytes) -> list[Message]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return []  # the first line may be cut, and one may be nested too deeply
    if not isinstance(entry, dict) or entry.get("type") != "message":
        return []
    return [
        Message(message.role, message.text[:_MESSAGE_CHARS_MAX])
        for message in read_messages([entry.get("message")])
        if message.role in {USER, ASSISTANT}
    ]
