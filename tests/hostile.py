"""A client's session with a relayer that answers whatever it is given to answer.

Not here: what must come of it (`tests/client/test_hostile_answers.py`, `tests/fuzz/parsers/`).

- The relayer holds its own key and a good chain of grants: only what is asked beyond that is false.
- It goes away after some requests, so that a client that would ask for ever ends as well.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from memrelay.answers import Answer
from memrelay.config import Settings
from memrelay.exchange import Each, Keep, Operation, Send, Sleep
from memrelay.operations.rotation import Operations
from memrelay.sealed.grants import issue_grant
from memrelay.sealed.keys import Identity, Root, account_id_of, account_text
from memrelay.sealed.objects import sign_object, to_base64
from memrelay.session import Session

NOW_MS = 1_700_000_000_000
FOUNDER = Identity(bytes(range(32)))
RELAYER = Identity(bytes(range(96, 128)))
ROOT = Root(bytes(range(32, 64)), 1)
ACCOUNT = account_id_of(FOUNDER.public_key)
SENDS_MAX = 40
GRANT = issue_grant(
    FOUNDER,
    account=ACCOUNT,
    serial=1,
    recipient=FOUNDER.public_key,
    role="owner",
    keys=[ROOT],
    created_ms=NOW_MS,
)
GOOD: Mapping[str, Mapping[str, Any]] = {
    "/v1/relayer": {
        "statement": to_base64(
            sign_object(
                "relayer",
                {"relayer": RELAYER.public_key.hex(), "issued": NOW_MS, "unlock_keys": []},
                RELAYER,
            )
        )
    },
    "/v1/grants": {
        "grants": [{"kind": "grant", "serial": 1, "object": to_base64(GRANT), "label": ""}],
        "grant_serial": 1,
    },
}

Asked = Callable[[Operations], Operation[Any]]


def receipt(*, seq: int = 1, prev: str = "00" * 32, op: str = "remember", **changes: Any) -> str:
    """A receipt that the relayer signed, in base64; `changes` are other members."""
    payload = {
        "relayer": RELAYER.public_key.hex(),
        "account": account_text(ACCOUNT),
        "seq": seq,
        "prev": prev,
        "time": NOW_MS,
        "op": op,
        "actor": FOUNDER.public_key.hex(),
        "namespace": "team",
        "epoch": 1,
        "items": [],
        "serial": 1,
    }
    return to_base64(sign_object("receipt", {**payload, **changes}, RELAYER))


class Gone(Exception):
    """The relayer was asked more often than an answer may make a client ask."""


def asked(
    operation: Asked,
    answers: Sequence[bytes],
    *,
    good: bool = True,
    custody: str = "managed",
) -> Any:
    """Carry an operation out; the answers come in turn, the last one again and again.

    Without `good`, also the relayer's statement and its list of grants are among the answers.

    Raises:
        Gone: the client asked again and again.
    """
    settings = Settings(
        url="https://memory.example",
        account_id=account_text(ACCOUNT),
        private_key=FOUNDER.seed_hex(),
        namespace="team",
        relayer_key=RELAYER.public_key.hex(),
        custody=custody,
    )
    session = Session(settings, clock=lambda: NOW_MS / 1000, monotonic=lambda: 0.0, attempts_max=1)
    sent = 0

    def reply(send: Send) -> httpx.Response:
        nonlocal sent
        path = urlsplit(send.target).path
        if good and path in GOOD and send.method == "GET":
            return httpx.Response(200, json=GOOD[path])
        sent += 1
        if sent > SENDS_MAX:
            raise Gone(path)
        return httpx.Response(200, content=answers[min(sent, len(answers)) - 1])

    def drive(running: Operation[Any]) -> Any:
        outcome: Any = None
        while True:
            try:
                step = running.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(step, Sleep):
                outcome = None
            elif isinstance(step, Keep):
                step.work()
                outcome = None
            elif isinstance(step, Each):
                outcome = [drive(one) for one in step.operations]
            else:
                outcome = reply(step)

    return drive(operation(Operations(session)))


def plain(found: Any) -> str:
    """A result as the command line writes it with `--json`."""
    if isinstance(found, Answer):
        found = found.to_json()
    elif isinstance(found, tuple):
        found = [json.loads(plain(one)) for one in found]
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, default=repr)
    text.encode()
    return text
