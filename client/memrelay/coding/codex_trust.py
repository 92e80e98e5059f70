"""Asks Codex which hooks its user trusts: it runs no other, and does not say so.

It does not own the trust, which is the user's consent and Codex' own record: nothing is written.
The protocol is that of `codex app-server` 0.171.0: JSON-RPC, an object a line.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memrelay import __version__
from memrelay.errors import MemrelayError

TRUSTED: Final = frozenset({"trusted", "managed"})
_DEADLINE_S: Final = 30.0
_ANSWER: Final = 2


def find_trust(program: str, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the trust of each hook of ours in a folder, by its command.

    A hook that is switched off counts as `disabled`.

    Raises:
        MemrelayError: Codex does not tell.
    """
    requests = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": _describe()}},
        {"method": "initialized"},
        {"id": _ANSWER, "method": "hooks/list", "params": {"cwds": [str(folder)]}},
    )
    try:
        answer = _ask(program, requests, environ)
        listed = [hook for one in answer["data"] for hook in one["hooks"]]
        return {
            str(hook["command"]): str(hook["trustStatus"]) if hook["enabled"] else "disabled"
            for hook in listed
            if " hook " in str(hook.get("command"))
        }
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        kind = type(error).__name__
        raise MemrelayError(f"Codex did not tell which hooks are trusted ({kind}).") from None


def _describe() -> dict[str, str]:
    return {"name": "memrelay", "title": "memrelay", "version": __version__}


def _ask(program: str, requests: tuple[Mapping[str, Any], ...], environ: Mapping[str, str]) -> Any:
    with subprocess.Popen(  # noqa: S603 - the user's own Codex
        [program, "app-server"],
        env=dict(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        timer = _kill_later(process)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for request in requests:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if answer.get("id") == _ANSWER:
                    return answer["result"]
            raise ValueError("no answer")
        finally:
            timer.cancel()
            process.kill()


def _kill_later(process: "subprocess.Popen[str]") -> Any:
    import threading  # noqa: PLC0415 - only here

    timer = threading.Timer(_DEADLINE_S, process.kill)
    timer.start()
    return timer
