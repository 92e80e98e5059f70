"""The faults of an installation, in plain words, and what to type.

Not here: verifying what is stored (`check.py`). A refused client is told nothing; whoever runs the
relayer may ask here how a key stands.

- Nothing is made, migrated or mended: a mistyped folder is told, not filled.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypedDict

from relayer import health, process
from relayer.clock import Clock, rfc3339, utc_now
from relayer.database import accounts as statements
from relayer.database import watch
from relayer.database.check import database_clock
from relayer.database.distribution import layout
from relayer.database.migrate import head
from relayer.embedding import answers, building, model
from relayer.embedding.embedders import Embedder
from relayer.embedding.published import find_published
from relayer.errors import RelayerError, Unavailable
from relayer.extraction.facts import Excerpt
from relayer.extraction.model import LlmExtractor
from relayer.identity import IdentityError
from relayer.installation import NotInstalled, as_found, at, key_path, last_writers, own_keys
from relayer.llm import LanguageModel
from relayer.memories.conversations import cause_of
from relayer.origins import is_plain, parse_origins
from relayer.postgres.embedded import PostgresError
from relayer.recovery.replay import refuse_blobs_elsewhere
from relayer.run_file import count_workers, find_pid, find_url
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings, SettingsError, open_to_this_machine
from relayer.storage import Storage, write_folders
from relayer.upkeep import check, reindex, sample

Built = Embedder | RelayerError | None  # None is none that the settings name
Probe = int | Unavailable | None  # facts that a language model found; None: there is no model
OK, WARNING, PROBLEM = "ok", "warning", "problem"  # the client's doctor has the same, and one more
SENTENCE = "user: I am Anna, and I have lived in Porto since 2019."
DISK_BYTES_MIN = 1 << 30
CLOCK_SKEW_S_MAX = 30  # nonces live by the database's clock, signatures by this machine's


class Finding(TypedDict):
    """The result of a check, in the form of `memrelay doctor`.

    `state` is `ok`, `warning` (it works, but not as it should) or `problem`. `command` is the text
    to type, or a setting with its value; None where there is nothing to type.
    """

    check: str
    state: str
    detail: str
    command: str | None


# The beginning of a failure's words → what mends it, and the setting to type if it is one; the
# address is that of whichever is set.
_ENDPOINT: Final[dict[str, tuple[str, str | None]]] = {
    "no connection": (
        "start the endpoint, or mend RELAYER_EMBEDDING_BASE_URLS or OPENAI_BASE_URL",
        None,
    ),
    "timeout": (
        "wait longer, or give the model a faster machine",
        "RELAYER_EMBEDDING_TIMEOUT_S=60",
    ),
    "status 3": (
        "redirects are not followed: set the address that it points to",
        "RELAYER_EMBEDDING_BASE_URLS=URL",
    ),
    "status 401": ("set the key that the endpoint wants", "OPENAI_API_KEY=KEY"),
    "status 403": ("set a key that may use RELAYER_EMBEDDING_MODEL", "OPENAI_API_KEY=KEY"),
    "status 404": (
        "set the address as it stands before /embeddings, mostly up to /v1, and"
        " RELAYER_EMBEDDING_MODEL as the endpoint calls it",
        "RELAYER_EMBEDDING_BASE_URLS=URL",
    ),
    "status 429": ("look at the limits and the credit of the key in OPENAI_API_KEY", None),
    "status 4": (
        "set a model that the endpoint has and that embeds texts",
        "RELAYER_EMBEDDING_MODEL=NAME",
    ),
}


async def examine(
    settings: Settings,
    key: str = "",
    *,
    language_model: LanguageModel | None = None,
    clock: Clock = utc_now,
) -> list[Finding]:
    """Return a finding for each thing that can be wrong.

    `key` is the beginning of a public key to look up. `language_model` is the one that the settings
    name; it is asked once.
    """
    built = await asyncio.to_thread(_build, settings)  # reads all of a built-in model
    try:
        probe = await _probe(language_model)
        return [
            _python(),
            _disk(settings),
            _model(settings, built),
            *await _storage(settings, key, built, probe, clock),
            *await _embedder(settings, built),
            await asyncio.to_thread(_server, settings),
            _loopback(settings),
            _cors(settings),
            _swap(settings),
        ]
    finally:
        if built is not None and not isinstance(built, RelayerError):
            await built.close()


def _build(settings: Settings) -> Built:
    try:
        return building.build_embedder(settings)
    except RelayerError as error:
        return error


def _to_finding(
    check: str, is_ok: bool, detail: str, command: str | None = None, *, advice: str = ""
) -> Finding:
    """Return that it is well, or else a problem with what mends it."""
    if is_ok:
        return {"check": check, "state": OK, "detail": detail, "command": None}
    whole = f"{detail}; {advice}" if advice else detail
    return {"check": check, "state": PROBLEM, "detail": whole, "command": command}


def _warning(check: str, detail: str, command: str) -> Finding:
    return {"check": check, "state": WARNING, "detail": detail, "command": command}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return _to_finding(
        "python", sys.version_info >= (3, 11), version, advice="install 3.11 or newer"
    )


def _disk(settings: Settings) -> Finding:
    """Check that every folder that is written to can be, and has room."""
    given = [settings.data_dir.absolute(), *(f.absolute() for f in write_folders(settings))]
    folders = [next(f for f in (one, *one.parents) if f.exists()) for one in given]
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            advice = "look at how its disk is mounted, and whose it is"
            return _to_finding("disk", False, f"{folder} cannot be written to", advice=advice)
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    least = min(folders, key=lambda folder: free[folder])
    where = f" in {least}" if len(free) > 1 else ""
    detail = f"{free[least] / 2**30:.1f} GiB free{where}"
    return _to_finding(
        "disk", free[least] >= DISK_BYTES_MIN, detail, advice=f"make room in {least}"
    )


def _model(settings: Settings, built: Built) -> Finding:
    needed = settings.embedder in ("builtin", "multilingual") or (
        settings.embedder == "auto" and not settings.embedding_model
    )
    published = find_published(settings.embedder)
    folder = model.folder_of(published, settings.model_dir)
    if needed:
        complete = not (isinstance(built, RelayerError) and built.code == model.MISSING)
    else:
        complete = model.is_complete(published, folder)
    detail = "complete" if complete else f"missing in {folder}" if needed else "not needed"
    return _to_finding("model", complete or not needed, detail, model.fetch_command(published))


async def _storage(
    settings: Settings, key: str, built: Built, probe: Probe, clock: Clock
) -> list[Finding]:
    command = f"relayer serve{at(settings)}"
    try:
        async with as_found(settings, clock) as storage:
            found = [
                _to_finding("database", True, f"schema {head()}, answering"),
                *await _cluster(storage),
                await _clock(storage, clock),
                await _blobs(storage, settings),
                await _identity(storage, settings),
                await _index(storage, settings, built),
                await _facts(storage, settings, probe, clock),
            ]
            return [*found, await _key(storage, key, clock)] if key else found
    except NotInstalled as error:
        message = str(error)
        if error.do.startswith("relayer "):
            command = error.do
        else:
            return [_to_finding("database", False, message, advice=error.do)]
    except RelayerError as error:
        message = error.message
    except (SettingsError, IdentityError, PostgresError) as error:
        message = str(error)
    return [_to_finding("database", False, message, command)]


async def _cluster(storage: Storage) -> list[Finding]:
    """Check that all tables of a cluster's database are distributed, or none; nothing elsewhere."""
    found = await layout(storage.database)
    if found is None:
        return []
    detail = f"{len(found.distributed)} tables over {found.nodes} nodes"
    if found.is_partial:
        detail += f"; not distributed: {', '.join(found.missing)}"
    if found.left_behind:
        detail += f"; old rows still on the coordinator: {', '.join(found.left_behind)}"
    whole = not found.is_partial and not found.left_behind
    return [_to_finding("cluster", whole, detail, "relayer migrate --distributed")]


async def _clock(storage: Storage, clock: Clock) -> Finding:
    told, now = await database_clock(storage.database), clock()
    skew_s = abs((now - told).total_seconds())
    detail = f"{rfc3339(now)}, {skew_s:.0f} s off the database's"
    return _to_finding("clock", skew_s <= CLOCK_SKEW_S_MAX, detail, "sudo timedatectl set-ntp true")


async def _blobs(storage: Storage, settings: Settings) -> Finding:
    """Check that the blob store answers, and is the one that has the blobs."""
    advice = "look at RELAYER_BLOB_STORE, what it names, and the RELAYER_S3_ variables of a bucket"
    try:
        await storage.blobs.read_mark(AccountId(bytes(32)))
        if storage.blobs.transactional:
            await refuse_blobs_elsewhere(storage.database)
            found = sample.Sample()
        else:
            found = await sample.take(storage)
    except Unavailable as error:
        told = f"{settings.blob_store}: {error.message.removesuffix('.')}"
        return _to_finding("blobs", False, told, advice=advice)
    except SettingsError as error:
        return _to_finding("blobs", False, str(error), advice=advice)
    if not found.missing:
        return _to_finding("blobs", True, f"{settings.blob_store}, answering")
    if found.missing == found.looked:
        detail = f"{settings.blob_store}: {check.NONE_THERE} ({found.looked} looked for)"
        return _to_finding("blobs", False, detail, advice=check.LOOK_AT_STORE)
    some = f"of {found.looked} blobs looked for, {found.missing} are not there or cannot be read"
    return _to_finding(
        "blobs", False, f"{settings.blob_store}: {some}", f"relayer check{at(settings)}"
    )


async def _identity(storage: Storage, settings: Settings) -> Finding:
    """Check that the accounts were last written by this relayer, not by one with another key."""
    ours = own_keys(storage, key_path(settings))
    writers = await last_writers(storage.database)
    others = sum(key not in ours for key in writers)
    detail = storage.identity.public_key.hex()
    if others:
        detail += f"; {others} of {len(writers)} accounts were last written by another key"
    return _to_finding(
        "identity",
        not others,
        detail,
        advice="put the old key file back (deploy/backup.md), and serve with one key only",
    )


async def _index(storage: Storage, settings: Settings, built: Built) -> Finding:
    """Check that no memories wait for another model or release while nobody works on them."""
    try:
        versions = await reindex.read_running_versions(settings)
        if versions is None:
            if isinstance(built, RelayerError):
                raise built
            versions = reindex.versions_by(built)
        report = await reindex.examine(storage, versions)
    except Unavailable as error:
        again = f"relayer doctor{at(settings)}"
        return _to_finding("index", False, f"cannot tell: {error.message}", again)
    works = find_url(settings.data_dir) is not None or not report.total("waiting")
    return _to_finding("index", works, report.as_text(), f"relayer reindex{at(settings)}")


async def _probe(language_model: LanguageModel | None) -> Probe:
    """Return the number of facts a model finds in a sentence, or its error; None without one."""
    if language_model is None:
        return None
    try:
        return len(await LlmExtractor(model=language_model).extract(Excerpt(SENTENCE)))
    except Unavailable as error:
        return error


async def _facts(storage: Storage, settings: Settings, probe: Probe, clock: Clock) -> Finding:
    """Name the finder of episodes' facts; say if it works now, and how often it failed of late."""
    found = await watch.failures(storage.database, clock())
    lately = (
        f"; episodes of the last day that a model failed at: {found.failed} (last: {found.cause});"
        f" episodes that wait: {found.waiting}"
        if found.failed
        else ""
    )
    if probe is None:
        detail = "from rules, which find fewer: no language model is set (RELAYER_LLM_MODEL)"
        return _warning("facts", detail + lately, f"relayer serve{at(settings)} --llm-model NAME")
    model_name = f"the language model {settings.llm_model}"
    if isinstance(probe, Unavailable):
        detail = f"{model_name} fails ({cause_of(probe)}): episodes wait, or rules take over"
        advice = "look at RELAYER_LLM_MODEL, OPENAI_BASE_URL, OPENAI_API_KEY and the model's server"
        return _to_finding("facts", False, detail + lately, advice=advice)
    detail = f"from {model_name}" if probe else f"{model_name} finds none in a plain sentence"
    advice = "name a model that follows instructions"
    return _to_finding("facts", probe > 0, detail + lately, "RELAYER_LLM_MODEL=NAME", advice=advice)


async def _key(storage: Storage, beginning: str, clock: Clock) -> Finding:
    """Describe how a key stands, for a client that was refused."""
    add = "memrelay keys add --namespace NAME"  # which the owner of the account types
    rows = await statements.keys_beginning(storage.database, beginning.lower())
    if len(rows) != 1:
        if rows:
            return _to_finding("key", False, "several begin so", advice="give the whole public key")
        unknown = "unknown: no account here ever granted it anything"
        return _to_finding("key", False, unknown, add)
    account, public_key = AccountId(rows[0]["whole_id"]), rows[0]["public_key"].hex()
    keys = await storage.accounts.all_keys(account)
    entry = next(entry for entry in keys if entry["public_key"] == public_key)
    ended = entry["expires_at"] is not None and entry["expires_at"] <= str(rfc3339(clock()))
    state = "revoked" if entry["revoked"] else "expired" if ended else "valid"
    until = f" until {entry['expires_at']}" if entry["expires_at"] else ""
    scope = "the whole account" if entry["namespaces"] is None else ", ".join(entry["namespaces"])
    detail = f"{state}: {entry['role']} of {scope}{until} in account {account_text(account)}"
    return _to_finding("key", state == "valid", detail, add)


async def _embedder(settings: Settings, built: Built) -> list[Finding]:
    """Tell whether each endpoint, or the model that runs here, embeds a word."""
    if isinstance(built, RelayerError):
        command = model.fetch_command(find_published(settings.embedder))
        return [_to_finding("embedder", False, built.message, command)]
    if built is None:
        return [_to_finding("embedder", True, "none: recall by keyword only")]
    urls = settings.embedding_urls
    if not building.is_remote(settings) or len(urls) < 2:
        return [await _embeds(built, built.model_id)]
    found = []
    for number, url in enumerate(urls, 1):  # else one that fails would stand behind another
        alone = building.build_embedder(replace(settings, embedding_base_urls=url))
        assert alone is not None  # as of all of them
        try:
            found.append(await _embeds(alone, f"{alone.model_id}, endpoint {number}"))
        finally:
            await alone.close()
    return found


async def _embeds(embedder: Embedder, name: str) -> Finding:
    try:
        await embedder.embed(["memory"])
    except Unavailable as error:
        cause = error.cause or error.message
        advice, setting = _mend(cause)
        return _to_finding("embedder", False, f"{name}: {cause}", setting, advice=advice)
    return _to_finding("embedder", True, f"{name}, embeds")


def _mend(cause: str) -> tuple[str, str | None]:
    """Return what to do where an endpoint does not embed, by the words of its failure."""
    if other := re.match(rf"{answers.DIMENSION}(\d+)", cause):
        return "set it, and restart", f"RELAYER_EMBEDDING_DIM={other[1]}"
    otherwise = (
        "look at what answers at RELAYER_EMBEDDING_BASE_URLS, or OPENAI_BASE_URL, and at its log"
    )
    found = (mended for words, mended in _ENDPOINT.items() if cause.startswith(words))
    return next(found, (otherwise, None))


def _server(settings: Settings) -> Finding:
    """Check that a relayer serves this folder, answers, and takes writes."""
    url, workers = find_url(settings.data_dir), count_workers(settings.data_dir)
    if url is None:
        return _to_finding("server", False, "not running", f"relayer serve{at(settings)}")
    detail = f"{url}, {workers} workers" if workers > 1 else url
    try:
        told = health.ask(settings.data_dir)
    except OSError as error:
        return _to_finding("server", False, str(error), advice="look at its log, or start it anew")
    ready = told.get("write_ready", True)
    lacks = "" if ready else ", but takes no writes now"
    advice = "look at its log for write_ready.lost"
    return _to_finding("server", ready, detail + lacks, advice=advice)


def _loopback(settings: Settings) -> Finding:
    found = open_to_this_machine(settings)
    detail = f"{' and '.join(found)} without a token for whoever asks at {settings.host}"
    if found:
        detail += "; behind a proxy on this machine, set RELAYER_PUBLIC_URL"
    return _to_finding("loopback", True, detail if found else "opens nothing by itself")


def _cors(settings: Settings) -> Finding:
    """Check that no page that may ask can be altered on its way to a browser."""
    origins = parse_origins(settings.cors_origins)
    plain = [origin for origin in origins if is_plain(origin)]
    if plain:
        detail = f"pages of {', '.join(plain)} may ask, and anybody on the way can alter them"
        return _warning("cors", detail, "RELAYER_CORS_ORIGINS=https://app.example.org")
    detail = f"pages of {', '.join(origins)} may ask" if origins else "no page elsewhere may ask"
    return _to_finding("cors", True, detail)


def _swap(settings: Settings) -> Finding:
    """Check whether keys and texts that are in memory may come to lie on a disk."""
    swaps, pid = process.plain_swaps(), find_pid(settings.data_dir)
    if swaps is None:
        return _to_finding("swap", True, "this system does not tell where it swaps to")
    locked = None if pid is None else process.has_locked_memory(pid)
    detail = f"swap is on and not known to be encrypted: {', '.join(swaps)}"
    if not swaps:
        detail = "no swap on a disk that is not encrypted"
    if locked is not None:
        kept = "is" if locked else "is not"
        detail += f"; the memory of the running relayer {kept} kept out of it"
    if not swaps or locked:
        return _to_finding("swap", True, detail)
    keeps = "; keys in memory may get there unless LimitMEMLOCK=infinity stands in its service"
    return _warning("swap", detail + keeps, "sudo swapoff -a")


def as_text(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, and below it what to type."""
    lines = []
    for found in findings:
        mark = found["state"].upper() if found["state"] == PROBLEM else found["state"]
        lines.append(f"{mark:8} {found['check']:9}  {found['detail']}")
        if found["command"]:
            lines.append(f"{'':8} {'type:':>9}  {found['command']}")
    return "\n".join(lines)
