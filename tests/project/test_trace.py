"""How many files of the relayer a request goes through: figures, printed with `-s`.

    pytest -s tests/project/test_trace.py

A hand-over is a call from one file of `relayer/` to another one; a coroutine counts once, however
often it goes on. Only what the event loop's thread does is seen. The relayer has neither an
embedder nor an index in memory here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import relayer
from relayer.app import build_app
from relayer.sealed.keys import account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.signing import Signer, client_of

FOLDER = str(Path(relayer.__file__).parent)


@dataclass
class Trace:
    """The files of the relayer that were entered, and the calls between them."""

    files: set[str] = field(default_factory=set)
    hand_overs: int = 0
    _frames: dict[int, FrameType] = field(default_factory=dict)  # kept, so that no id comes again

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; `sys.setprofile` calls this."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(FOLDER) or id(frame) in self._frames:
            return
        self._frames[id(frame)] = frame
        self.files.add(file)
        self.hand_overs += _caller_of(frame) not in (None, file)


def _caller_of(frame: FrameType) -> str | None:
    """The file of the relayer that a call comes from, maybe through a library."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename.startswith(FOLDER):
            return above.f_code.co_filename
        above = above.f_back
    return None


@contextmanager
def traced() -> Iterator[Trace]:
    trace, before = Trace(), sys.getprofile()
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        trace._frames.clear()


async def test_files_and_hand_overs_of_requests(
    storage: Storage, lean: Settings, managed: NewKey
) -> None:
    # Without an index in memory, which is brought up to date beside requests.
    app = build_app(storage, replace(lean, index_memory_bytes=0))
    relayer_key = {"relayer": storage.identity.public_key.hex()}
    signer = Signer(identity=managed.identity, account=account_text(managed.account))
    async with client_of(app, signer) as client:

        async def ask(method: str, path: str, body: dict[str, Any]) -> Any:
            answer = await client.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        async def show(name: str, method: str, path: str, body: dict[str, Any]) -> None:
            with traced() as trace:
                await ask(method, path, body)
            assert trace.files
            print(f"\n{name:>9}: {len(trace.files)} files, {trace.hand_overs} hand-overs", end="")

        def said(text: str) -> dict[str, Any]:
            return relayer_key | {"text": text, "namespace": "team"}

        # Once before, for what is loaded and looked up only the first time.
        first = await ask("POST", "/v1/remember", said("Bob rents a flat in Oslo."))
        query = {"query": "Where does Bob live?", "namespaces": ["team"]}
        await ask("POST", "/v1/recall", query)
        path = f"/v1/memories/{first['id']}"
        await show("remember", "POST", "/v1/remember", said("Anna prefers green tea."))
        await show("recall", "POST", "/v1/recall", query)
        await show("edit", "PATCH", path, relayer_key | {"text": "Bob rents a house in Oslo."})
        await show("pin", "POST", f"{path}/state", relayer_key | {"pinned": True})
