"""The main job, shown: two agents remember a conversation, a new process recalls it, and one
agent's key opens nothing of the other's, even with the relayer's database and key file in hand.

Runs a real relayer on a temporary data folder and leaves the folder behind for looking at.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from proof import Proof, prove_isolation

from memrelay import SyncMemoryClient

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
AGENTS = {"researcher": "researcher,team", "coder": "coder,team"}
WINDOW = 10
DIM, BOLD, GREEN, RESET = (
    ("\033[2m", "\033[1m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("", "", "", "")
)


@dataclass(frozen=True)
class Agent:
    """One agent's credentials."""

    name: str
    account_id: str
    private_key: str
    relayer_key: str
    url: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make the `memrelay` command this agent."""
        return {
            "MEMRELAY_URL": self.url,
            "MEMRELAY_ACCOUNT_ID": self.account_id,
            "MEMRELAY_PRIVATE_KEY": self.private_key,
            "MEMRELAY_RELAYER_KEY": self.relayer_key,
            "XDG_CONFIG_HOME": str(self.home),
        }


def main() -> int:
    """Run the demo; 0 when everything it claims was seen."""
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="memrelay-demo-"))
    step(f"starting a relayer on {folder}")
    with relayer(folder) as url:
        step("founding a sealed account with two agents and a namespace they share")
        founder, agents = provision(folder, url)
        turns = lines(HERE / "conversation.jsonl")
        step(f"capturing a conversation of {len(turns)} turns")
        kept = capture(agents, turns)
        print(f"  {kept} memories kept, sealed under their namespaces' keys")
        step("recalling in new processes that hold one agent's key each")
        missed = [q for q in lines(HERE / "questions.jsonl") if not answered(agents, q)]
        step("what coder's key opens, with the whole database and relayer.key in hand")
        proof = asyncio.run(prove_isolation(folder, agents["coder"].private_key))
        refused = asks_for_the_other(agents["coder"])
        report(proof, refused)
    epilogue(folder, founder, time.monotonic() - started)
    return 0 if proof.holds and refused and not missed else 1


@contextmanager
def relayer(folder: Path) -> Iterator[str]:
    """A real relayer process on a free port."""
    with (folder / "relayer.log").open("w") as log:
        process = subprocess.Popen(
            [BIN / "relayer", "serve", "--data-dir", folder, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        match = re.search(r"ready at (\S+)", process.stdout.readline())
        if match is None:
            raise SystemExit(f"the relayer did not start; its log: {folder}/relayer.log")
        yield match[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def provision(folder: Path, url: str) -> tuple[dict[str, Any], dict[str, Agent]]:
    """A sealed account, and a key for each agent."""
    founder = command(folder, "account", "create", "--label", "demo", "--custody", "sealed")
    agents = {}
    for name, namespaces in AGENTS.items():
        key = command(
            folder,
            *("key", "add", "--account", founder["account_id"], "--label", name),
            *("--namespaces", namespaces, "--role", "writer"),
            RELAYER_OWNER_KEY=founder["private_key"],
        )
        agents[name] = Agent(
            name, key["account_id"], key["private_key"], key["relayer_key"], url, folder / name
        )
        print(f"  {name:10} may write {namespaces.replace(',', ' and ')}")
    return founder, agents


def command(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What a `relayer` command answers."""
    done = subprocess.run(
        [BIN / "relayer", *arguments, "--data-dir", folder, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def capture(agents: dict[str, Agent], turns: list[dict[str, Any]]) -> int:
    """Send each session as an agent gateway would, in windows of ten messages."""
    ids: dict[str, list[str]] = {name: [] for name in agents}
    for (_, name, namespace), session in groupby(
        turns, key=lambda t: (t["session"], t["agent"], t["namespace"])
    ):
        messages = list(session)
        with client(agents[name]) as memory:
            for at in range(0, len(messages), WINDOW):
                window = messages[at : at + WINDOW]
                text = "\n\n".join(
                    f"{n}. {m['role']}: {m['text']}" for n, m in enumerate(window, start=1)
                )
                when = datetime.fromisoformat(window[-1]["at"])
                analyzed = memory.analyze(text, namespace=namespace, occurred_at=when)
                ids[name] += [fact.id for fact in analyzed.facts]
    for name, agent in agents.items():
        with client(agent) as memory:
            memory.wait(list(dict.fromkeys(ids[name])))
    return len({i for kept in ids.values() for i in kept})


def client(agent: Agent) -> SyncMemoryClient:
    """A client with this agent's key."""
    return SyncMemoryClient(
        url=agent.url,
        account_id=agent.account_id,
        private_key=agent.private_key,
        relayer_key=agent.relayer_key,
        custody="sealed",
    )


def answered(agents: dict[str, Agent], question: dict[str, Any]) -> bool:
    """Ask in a new client process, print what came back, tell whether the answer is among it."""
    agent = agents[question["agent"]]
    done = subprocess.run(
        [BIN / "memrelay", "recall", question["question"], "--limit", "3", "--json"]
        + ["--namespace", question["namespace"]],
        env={**os.environ, **agent.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)["results"]
    good = any(question["expect"] in r["text"] for r in results)
    print(f"\n  {BOLD}{agent.name} asks {question['namespace']}:{RESET} {question['question']}")
    for r in results:
        mark = f"{GREEN}●{RESET}" if question["expect"] in r["text"] else " "
        print(f"  {mark} {DIM}{1 - r['distance']:4.0%}{RESET} {r['text'][:150]}")
    if not good:
        print(f"    expected: {question['expect']}")
    return good


def asks_for_the_other(agent: Agent) -> bool:
    """Whether the client or the relayer refuses coder's key in researcher's namespace."""
    done = subprocess.run(
        [BIN / "memrelay", "recall", "budget", "--namespace", "researcher", "--json"],
        env={**os.environ, **agent.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode != 0 and not done.stdout.strip()


def report(proof: Proof, refused: bool) -> None:
    """Print what the proof found."""
    print(f"  {len(proof.opened)} namespaces opened: {proof.opened}")
    theirs = proof.opened.get("researcher", 0)
    print(f"  blobs tried: {proof.tried}; of researcher's {proof.foreign}, opened: {theirs}")
    print(f"  readable words of the conversation found in {proof.tables} tables: {proof.leaked}")
    print(f"  asking the relayer for researcher's memories: {'refused' if refused else 'ANSWERED'}")


def epilogue(folder: Path, founder: dict[str, Any], seconds: float) -> None:
    """Where everything is, and what to type next."""
    step(f"done in {seconds:.0f} s")
    print(f"""  data, database and keys  {folder}
  relayer's log            {folder}/relayer.log
  account                  {founder["account_id"]}

  next:
    make serve                                       a relayer with its data in ./data
    .venv/bin/memrelay init http://127.0.0.1:8000
    .venv/bin/memrelay remember "I prefer aisle seats."
    .venv/bin/memrelay recall "Where do I like to sit?"
    rm -r {folder}""")


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def step(text: str) -> None:
    """Say what happens now."""
    print(f"\n{BOLD}▸ {text}{RESET}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
