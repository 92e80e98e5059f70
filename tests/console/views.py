"""The console in a real Chromium against a real relayer, each view as a person uses it.

`make test-console` runs this file; `make test`, which needs no browser, does not. Not here: how the
files are served (`tests/routes/test_console.py`, `tests/client/test_console.py`).
"""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memrelay import Identity, SyncMemoryClient
from memrelay.archive_reader import open_archive, open_memories
from memrelay.models import NewAccount, relevance_percent
from memrelay.sealed.join_request import make_fingerprint, write_request
from memrelay.sealed.keys import account_bytes
from memrelay.sealed.recovery import recover_identity
from relayer.http.console import FOLDER, PAGE
from tests.openai_server import API_KEY, CHAT_MODEL, openai_server
from tests.processes import QUIET, RunningRelayer, running_relayer
from tests.talking import facts

DRIVE = Path(__file__).with_name("drive.mjs")
RUN_S_MAX = 1200
LONG_TASK_MS = 50  # browsers report no shorter ones
ROWS_MAX = 40  # in the document at once: what a screen shows, and some beyond its edges
LIGHT = {"colorScheme": "light"}
DARK = {"colorScheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 800}, "colorScheme": "light", "hasTouch": True}
ANSWER = "Anna drinks green tea in the morning."
CORRECTED = "Anna drinks black tea in the morning, and green tea in the evening."
FORGOTTEN = "The spare key of the cabin lies under the third stone."
EDITED = "The launch is planned for the end of May."
BERLIN, MUNICH = "The user lives in Berlin.", "The user lives in Munich now."
DOUBTFUL = "The user may be allergic to hazelnuts."
TEAM = (
    ("The staging server moved to Frankfurt.", ["infra"], "2026-09-14T09:00:00Z"),
    ("Deployments are frozen on Fridays after three.", ["infra", "rules"], "2026-10-02T15:00:00Z"),
    ("Backups of the ledger run every six hours.", ["infra"], "2026-10-20T06:00:00Z"),
    ("We decided to keep PostgreSQL for the ledger.", ["decision"], "2026-11-03T11:30:00Z"),
    ("Marta reviews changes to the billing code.", ["people"], "2026-11-18T10:00:00Z"),
)
OWN: tuple[tuple[str, list[str]], ...] = (
    (ANSWER, ["drinks"]),
    ("Anna prefers trains to planes for trips below six hours.", ["travel"]),
    ("The dentist's appointment is on the second Tuesday of December.", []),
    (FORGOTTEN, ["home"]),
    ("The wine for the birthday is ordered from the shop at the harbour.", ["home"]),
)
IN_FORCE = len(TEAM) + len(OWN) + 3  # and the launch, Berlin, Munich
NAMESPACES = 70  # more than four requests may name
SHIP = "The ship Calypso is repaired in harbour number {}."


@dataclass(frozen=True)
class Run:
    """What came of the steps, the pictures, and what was secret in the account."""

    report: dict[str, Any]
    folder: Path
    account: NewAccount
    relayer: RunningRelayer

    @property
    def steps(self) -> dict[str, Any]:
        return dict(self.report["steps"])


def b64(data: bytes) -> list[str]:
    """The forms in which bytes may stand in a text, without padding."""
    encoders = (base64.b64encode, base64.urlsafe_b64encode)
    return [encode(data).decode().rstrip("=") for encode in encoders]


def drive(scene: dict[str, Any], folder: Path) -> dict[str, Any]:
    packages = os.environ["CONSOLE_TESTS"]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "a Chromium is needed"
    file = folder / "scene.json"
    file.write_text(json.dumps({"chromium": chromium, "folder": str(folder), **scene}))
    done = subprocess.run(
        ["node", str(DRIVE), str(file), packages],
        capture_output=True, text=True, timeout=RUN_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def write_profile(path: Path, account: NewAccount, url: str) -> str:
    values = {
        "url": url,
        "account_id": account.account_id,
        "private_key": account.private_key,
        "relayer_key": account.relayer_key,
        "namespace": "default",
    }
    path.write_text(json.dumps(values))
    return str(path)


def client_for(account: NewAccount, url: str, key: str | None = None) -> SyncMemoryClient:
    return SyncMemoryClient(
        url=url,
        account_id=account.account_id,
        private_key=key or account.private_key or "",
        relayer_key=account.relayer_key,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Run]:
    """One pass over all steps; `CONSOLE_TESTS` is the folder that has the packages."""
    assert (FOLDER / PAGE).exists(), "type `make console` first"
    folder = Path(os.environ.get("CONSOLE_PICTURES") or tmp_path_factory.mktemp("console"))
    data = tmp_path_factory.mktemp("console-data")
    with openai_server() as model:
        thinking = {
            "RELAYER_LLM_MODEL": CHAT_MODEL,
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": API_KEY,
        }
        with running_relayer(data, model_dir, **thinking) as relayer:
            account = SyncMemoryClient.create_account(relayer.url, label="Uma")
            phone, desktop = Identity.generate(), Identity.generate()
            with client_for(account, relayer.url) as client:
                fill(client, relayer.url, account, model)
                relayer_key = bytes.fromhex(account.relayer_key)
            now_ms = int(time.time() * 1000)
            request, other_request = (
                write_request(
                    holder,
                    relayer=relayer_key,
                    account=account_bytes(account.account_id),
                    created_ms=now_ms,
                    expires_ms=now_ms + 86_400_000,
                    label=label,
                )
                for holder, label in ((phone, "phone"), (desktop, "desktop"))
            )
            scene = {
                "url": f"{relayer.url.replace('127.0.0.1', 'localhost')}/console",
                "profile": write_profile(folder / "profile.json", account, relayer.url),
                "account": account.account_id,
                "joinRequest": request,
                "fingerprint": make_fingerprint(phone.public_key),
                "replacing": {
                    "request": other_request,
                    "fingerprint": make_fingerprint(desktop.public_key),
                },
                "question": "What does Anna drink in the morning?",
                "answer": ANSWER,
                "corrected": CORRECTED,
                "forgotten": FORGOTTEN,
                "edited": EDITED,
                "texts": [ANSWER, EDITED, *(text for text, _, _ in TEAM)],
                "many": fill_many_namespaces(folder, relayer.url),
                "looks": {"-light": LIGHT, "-dark": DARK, "-phone": PHONE},
            }
            yield Run(drive(scene, folder), folder, account, relayer)


def fill(client: SyncMemoryClient, url: str, account: NewAccount, model: Any) -> None:
    """Store what a person and an agent would have, with what waits for a decision."""
    coder = client.add_key(namespaces=["team"], label="coder")
    with client_for(account, url, coder.private_key) as agent:
        for text, tags, at in TEAM:
            agent.remember(text, namespace="team", tags=tags, event_time=at)
    for text, tags in OWN:
        client.remember(text, tags=tags)
    launch = client.remember("The launch is planned for April.", tags=["work"])
    client.edit(launch.id, text="The launch is planned for May.")
    client.edit(launch.id, text=EDITED)
    client.pin(launch.id)
    client.remember(BERLIN)
    client.change_settings(contradictions="review", low_confidence="review")
    model.script(facts(MUNICH, contradicts=1))
    client.analyze("1. user: I left Berlin. I live in Munich now.")
    model.script(facts(DOUBTFUL, confidence="low"))
    client.analyze("1. user: Perhaps I am allergic to hazelnuts.")


def fill_many_namespaces(folder: Path, url: str) -> dict[str, Any]:
    """Return an account with more namespaces than a request may name, and what to ask it."""
    account = SyncMemoryClient.create_account(url)
    names = [f"harbour-{n:02}" for n in range(NAMESPACES)]
    with client_for(account, url) as client:
        for n, name in enumerate(names):
            client.remember(SHIP.format(n), namespace=name)
    return {
        "profile": write_profile(folder / "many.json", account, url),
        "question": f"What is repaired in harbour number {NAMESPACES - 1}?",
        "answer": SHIP.format(NAMESPACES - 1),
        "last": names[-1],
        "total": NAMESPACES,
    }


def test_a_search_covers_any_number_of_namespaces(run: Run) -> None:
    """It asks for 16 at once, in few requests beside each other, and says what it left out."""
    assert run.steps["namespaces at once"] == {"most": 4, "requests": 5}
    assert run.steps["opened by its address"] == SHIP.format(NAMESPACES - 1)
    assert run.steps["searched in part"] == (
        "Only 64 of 70 namespaces were searched, so better memories may be missing. "
        "This key may not read there. An owner of the account can admit it with another role. "
        "Search again, or choose one namespace."
    )


def test_everything_is_done_as_a_person_does_it(run: Run) -> None:
    steps = run.steps
    assert run.report["console"] == []
    assert steps["nothing readable is left when it is locked"] is True
    assert steps["corrected"] == CORRECTED
    assert steps["receipts of it"] >= 4
    assert re.fullmatch(r"1 time, last on .+ \(UTC\)", steps["a memory's recalls"])
    most = [row.splitlines()[0] for row in steps["recalled most"]]
    assert ANSWER in most
    assert all("1 time, last on" in row for row in steps["recalled most"])
    assert steps["never recalled"] == IN_FORCE - len(most)
    assert steps["stored by an agent"] == len(TEAM)
    assert steps["forgotten"] == 0
    assert steps["timeline of a tag"] == [
        "Backups of the ledger run every six hours.",
        "Deployments are frozen on Fridays after three.",
        "The staging server moved to Frankfurt.",
    ]
    assert steps["timeline of an agent"] == len(TEAM)
    assert steps["keys"] == 3
    newest_first = [int(row.split()[0]) for row in steps["receipts by number"]]
    assert newest_first == list(range(len(newest_first), 0, -1))
    assert steps["receipts"].startswith(f"All {len(newest_first)} receipts of the account")
    exported = [json.loads(line) for line in steps["exported"].splitlines()]
    texts = {one["text"] for one in exported}
    assert {CORRECTED, EDITED, MUNICH} <= texts
    assert FORGOTTEN not in texts
    assert steps["request"].startswith("memrelay-join:")
    for shown in (*steps["recovery key"], run.account.account_id, run.account.relayer_key):
        assert shown in steps["printed"]
    assert steps["founded"] == "The first memory was typed into the console."
    assert [row.splitlines()[0] for row in steps["stored"]] == [steps["founded"]]
    for done in (
        "a page loaded anew is locked",
        "kept under a passphrase, and taken out",
        "kept under a passkey",
        "locked when nobody used it",
        "pinned",
        "expires",
        "decided",
        "the End key leads to the last row",
        "opened by the keyboard",
        "on paper are the sheet and nothing else",
        "nothing of the recovery key is left",
        "opened by a recovery key",
    ):
        assert steps.get(done) is True, done


def test_the_archive_is_sealed_and_whole(run: Run) -> None:
    """The Python client opens it with the owner's key, and nobody reads it without one."""
    path = run.folder / "memrelay.archive"
    data = path.read_bytes()
    for text in (CORRECTED, EDITED, MUNICH, "default"):
        assert text.encode() not in data
    owner = Identity.from_hex(run.account.private_key or "")
    archive = open_archive(path, owner, account_bytes(run.account.account_id))
    now_ms = int(time.time() * 1000)
    texts = {memory.text for memory in open_memories(archive, owner, now_ms)}
    assert {CORRECTED, EDITED, MUNICH} <= texts
    assert FORGOTTEN not in texts
    assert archive.lost == 0
    assert run.steps["errors of the archive"] == ""


def test_reasons_are_in_per_cent_as_the_command_shows_them(run: Run) -> None:
    """What stands beside a memory is what `memrelay recall --explain` says of it."""
    recalled, reasons = run.steps["recalled"], run.steps["reasons"]
    assert len(recalled) == len(reasons) >= 2
    for found, shown in zip(recalled, reasons, strict=True):
        why = found["explain"]
        assert f"{relevance_percent(found['distance'])}% relevant" in shown
        assert f"In meaning, it is {max(0.0, why['cosine']):.0%} near." in shown
        assert f"In words, it is {why['keyword']:.0%} near." in shown
        assert f"its score of {found['score']:.2f}, the sum of" in shown
        assert "score" not in shown.splitlines()[0]
    assert run.steps["sentence on relevance"].startswith("Relevance says how near a memory is")


def test_the_account_is_as_it_was_left(run: Run) -> None:
    """What the page said was done, the relayer says, too, to another client."""
    with client_for(run.account, run.relayer.url) as client:
        listed = {memory.text: memory for memory in client.list(limit=200).memories}
        assert listed[CORRECTED].pinned
        assert list(listed[CORRECTED].tags) == ["drinks", "anna"]
        assert FORGOTTEN not in listed
        assert BERLIN not in listed
        assert MUNICH in listed
        assert DOUBTFUL not in listed
        assert client.review().memories == ()
        client.receipts()
        listed_keys = client.keys()
        keys = {key.label: key for key in listed_keys}
        assert keys["phone"].revoked
        assert keys["recovery"].public_key == read_recovery_key(run).public_key.hex()
        assert keys["recovery"].role == "owner"
        coders = [key for key in listed_keys if key.label == "coder"]
        assert sorted((key.revoked, key.role, key.namespaces) for key in coders) == [
            (False, "writer", ("team",)),
            (True, "writer", ("team",)),
        ]
        assert run.steps["may be left out"] == ["coder"]
        rotation = client.rotation()
        assert (rotation.epoch, rotation.older, rotation.remaining) == (3, 0, 0)
        assert client.live_epochs() == (3,)


def read_recovery_key(run: Run) -> Identity:
    """Return the key that the page showed, as every client reads it from paper."""
    return recover_identity(
        "\n".join(run.steps["recovery key"]), account_bytes(run.account.account_id)
    )


def test_no_key_leaves_the_browser_and_no_text_but_in_signed_requests(run: Run) -> None:
    requests = run.report["requests"]
    assert len(requests) > 100
    origin = re.compile(r"http://localhost:\d+/(console(/[a-z]+-[0-9a-f]{16}\.(js|css|svg))?|v1/)")
    seed = run.account.private_key or ""
    lines = run.steps["recovery key"]
    recovery = read_recovery_key(run).seed_hex()
    secrets = [*lines, *("".join(line.split()) for line in lines)]
    for secret in (seed, recovery):
        secrets += [secret, *b64(bytes.fromhex(secret))]
    words = ["Anna", "drink", "green tea", "Frankfurt", "passphrase", "hazelnuts"]
    said = 0
    for one in requests:
        assert origin.match(one["url"]), one["url"]
        everything = json.dumps(one)
        assert [secret for secret in secrets if secret in everything] == []
        head = json.dumps([one["url"], one["headers"]])
        assert [word for word in words if word in head] == [], one["url"]
        if any(word in one["body"] for word in words):
            said += 1
            assert one["headers"]["x-signature"], one["url"]
            assert "passphrase" not in one["body"]
        if "/v1/" in one["url"] and not one["url"].endswith("/v1/relayer"):
            assert one["headers"]["x-signature"], one["url"]
    assert said >= 4


def test_what_the_browser_stores_opens_nothing(run: Run) -> None:
    seed = run.account.private_key or ""
    for name in ("the browser stores", "under a passkey, the browser stores"):
        stored = run.steps[name]
        assert "memrelay.console.keys" in stored
        for secret in (seed, *b64(bytes.fromhex(seed)), "passphrase of several", ANSWER):
            assert secret not in stored


def test_no_rule_of_accessibility_is_broken_in_light_and_dark(run: Run) -> None:
    assert run.report["violations"] == []


def test_pictures_are_there(run: Run) -> None:
    pictures = {path.stem for path in run.folder.glob("*.png")}
    assert {
        "open-phone",
        "search-light",
        "search-dark",
        "memories-phone",
        "review-light",
        "empty",
    } <= pictures


def test_ten_thousand_memories_take_no_more_of_a_page_than_a_hundred(
    tmp_path_factory: pytest.TempPathFactory, model_dir: Path
) -> None:
    """Loading, scrolling, filtering and searching draw what is seen, however long the list is.

    Tasks' lengths are printed, and not judged: they are the machine's, too.
    """
    folder = tmp_path_factory.mktemp("console-long")
    with running_relayer(folder / "data", model_dir, **QUIET) as relayer:
        profiles = {}
        for count in (100, 10_000):
            account = SyncMemoryClient.create_account(relayer.url)
            with client_for(account, relayer.url) as client:
                client.remember_many(
                    {"text": f"Memory number {n} of a long list about the ship Calypso."}
                    for n in range(count)
                )
            profiles[str(count)] = write_profile(folder / f"{count}.json", account, relayer.url)
        scene = {"url": f"{relayer.url}/console", "measured": profiles}
        tasks = drive(scene, folder)["tasks"]
    few, many = tasks["100"], tasks["10000"]
    longest = [max(LONG_TASK_MS, one["longest"]) for one in (few, many)]
    print(f"longest tasks: {longest} ms; ratio to 100 memories: {longest[1] / longest[0]:.1f}")
    assert many["rows"] == "10,000 memories"
    assert (few["last"], many["last"]) == (100, 10_000)
    assert 0 < many["rowsMost"] <= few["rowsMost"] + 1 <= ROWS_MAX
