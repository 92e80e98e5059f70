"""Nothing readable at rest: marked strings through the whole product, then searched everywhere."""

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay import MemrelayError, SyncMemoryClient
from memrelay.sealed.keys import Identity
from tests.openai_server import API_KEY, CHAT_MODEL, Step, openai_server
from tests.processes import RunningRelayer, running_relayer
from tests.signing import signed_headers
from tests.test_serve import client, create_account


def marked(what: str) -> str:
    """A word that occurs nowhere else."""
    return f"zq{what}{uuid.uuid4().hex[:12]}"


def spellings(secret: str) -> Iterator[bytes]:
    """What a careless program makes of a secret: itself, hex, base64 at every offset, hashes."""
    raw = secret.encode()
    yield from (raw, raw.hex().encode(), raw.hex().upper().encode(), raw.title(), raw.upper())
    for offset in range(3):
        encoded = base64.b64encode(b"x" * offset + raw)
        yield encoded[4 if offset else 0 : -4]
    for algorithm in (hashlib.sha256, hashlib.md5, hashlib.sha1, hashlib.blake2b):
        digest = algorithm(raw).digest()
        yield from (digest, digest.hex().encode(), base64.b64encode(digest))
    short = hashlib.blake2b(raw, digest_size=32).digest()
    yield from (short, short.hex().encode())


def leaks(folder: Path, secrets: dict[str, str]) -> list[str]:
    """Which secrets stand in which files, in any spelling."""
    needles = [(name, n) for name, secret in secrets.items() for n in set(spellings(secret))]
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue  # a running database removes files; the search after its end has them all
        found += [f"{name} in {path.relative_to(folder)}" for name, n in needles if n in data]
    return found


@pytest.mark.parametrize("custody", ["managed", "sealed"])
def test_no_marked_string_is_found_anywhere(tmp_path: Path, model_dir: Path, custody: str) -> None:
    """Every route and job; the data folder with database, write-ahead log, queue and log files."""
    names = "text query goal alias tag source name value turn pending question key session"
    secrets = {name: marked(name) for name in names.split()}
    with (
        openai_server() as model,
        running_relayer(
            tmp_path,
            model_dir,
            OPENAI_BASE_URL=model.base_url,
            OPENAI_API_KEY=API_KEY,
            RELAYER_LLM_MODEL=CHAT_MODEL,
            RELAYER_LLM_TIMEOUT_S="2",
            RELAYER_LOG_LEVEL="debug",
        ) as relayer,
    ):
        account = create_account(relayer, custody)
        with client(account, relayer.url) as memory:
            use_everything(memory, model, secrets)
        misuse(relayer, account, secrets)
        assert not leaks(tmp_path, secrets), "while it runs"
    assert not leaks(tmp_path, secrets), "after it stopped"
    control = tmp_path / "control"
    control.write_text(base64.b64encode(f"ab {secrets['text']} cd".encode()).decode())
    assert leaks(tmp_path, secrets) == ["text in control"], "the search itself finds"


def use_everything(memory: SyncMemoryClient, model: Any, s: dict[str, str]) -> None:
    kept = memory.remember(
        f"The password hint is {s['text']}.",
        tags=[s["tag"]],
        source=s["source"],
        metadata={s["name"]: s["value"]},
        event_time=datetime(2026, 3, 1, tzinfo=UTC),
        expires_at=datetime.now(UTC) + timedelta(days=30),
        idempotency_key=s["key"],
    )
    memory.wait([kept.id])
    assert memory.recall(f"hint {s['text']} {s['query']}").results[0].id == kept.id
    assert memory.recall(s["text"], tags=[s["tag"]], source=s["source"], explain=True).results
    aliases = {s["query"]: [s["alias"], "hint"]}
    goal = f"give {s['goal']} a hint"
    assert memory.recall(s["query"], aliases=aliases, goal=goal, max_tokens=100).results
    facts = {"facts": [{"text": f"Their code word is {s['turn']}.", "kind": "fact"}]}
    model.script(Step(content=json.dumps(facts)))
    memory.analyze(f"user: my code word is {s['turn']}")
    model.script(*[Step(status=500)] * 3)
    memory.analyze(f"user: and then {s['pending']} happened")
    model.script(Step(content="I do not know."))
    memory.ask(f"What about {s['question']}?")
    assert memory.get(kept.id).text == f"The password hint is {s['text']}."
    memory.list(limit=10)
    memory.restore()
    doomed = memory.remember(f"Forget {s['text']} soon.")
    memory.forget(doomed.id)


def misuse(relayer: RunningRelayer, account: dict[str, Any], s: dict[str, str]) -> None:
    """Errors must not quote what they refuse."""
    bodies = [
        f'{{"query": "{s["query"]}", "limit": "{s["value"]}"}}',
        f'{{"query": ["{s["query"]}"]}}',
        f"not json {s['text']}",
        json.dumps({"query": s["query"], s["name"]: 1}),
    ]
    identity = Identity(bytes.fromhex(account["private_key"]))
    for body in bodies:
        headers = signed_headers(
            identity, "POST", "/v1/recall", body.encode(), account=account["account_id"]
        ) | {"content-type": "application/json"}
        answer = httpx.post(f"{relayer.url}/v1/recall", content=body, headers=headers)
        assert answer.status_code == 400, answer.text
        assert not any(secret in answer.text for secret in s.values())
        headers["x-seal-session"] = base64.b64encode(s["session"].encode()).decode()
        answer = httpx.post(f"{relayer.url}/v1/recall", content=body, headers=headers)
        assert answer.status_code == 401
    assert httpx.get(f"{relayer.url}/v1/memories?{s['query']}={s['text']}").status_code in (
        401,
        426,
    )


def test_refusals_hold_no_secret(relayer: RunningRelayer) -> None:
    account = create_account(relayer, "sealed")
    with client(account, relayer.url) as memory, pytest.raises(MemrelayError) as refused:
        memory.remember("  ")
    assert account["private_key"] not in repr(refused.value)


def test_private_files_are_private(tmp_path: Path, model_dir: Path) -> None:
    with running_relayer(tmp_path, model_dir):
        assert (tmp_path / "relayer.key").stat().st_mode & 0o777 == 0o600
        cluster = tmp_path / "postgres"
        assert cluster.stat().st_mode & 0o007 == 0
