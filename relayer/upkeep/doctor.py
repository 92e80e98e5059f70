"""What is wrong with an installation, in plain words, and what to type.

Not here: verifying what is stored (`check.py`). A refused client is told nothing; whoever runs the
relayer may ask here how a key stands.

- Nothing is made, migrated or mended: a mistyped folder is told, not filled.
"""

import asyncio
import os
import re
import shutil
import sys
from dataclasses import replace
from typing import Any

from relayer import health, process
from relayer.clock import Clock, rfc3339, utc_now
from relayer.database import accounts as statements
from relayer.database import watch
from relayer.database.check import database_clock
from relayer.database.distribution import layout
from relayer.database.migrate import head
from relayer.embedding import answers, building, model
from relayer.embedding.embedders import Embedder
from relayer.embedding.published import named
from relayer.errors import RelayerError, Unavailable
from relayer.extraction.facts import Excerpt
from relayer.extraction.model import LlmExtractor
from relayer.identity import IdentityError
from relayer.installation import NotInstalled, as_found, at, key_path, last_writers, own_keys
from relayer.llm import LanguageModel
from relayer.memories.conversations import cause_of
from relayer.postgres.embedded import PostgresError
from relayer.recovery.replay import refuse_blobs_elsewhere
from relayer.running import running_pid, running_url, running_workers
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings, SettingsError, open_to_this_machine
from relayer.storage import Storage, write_folders
from relayer.upkeep import check, reindex, sample

Finding = dict[str, Any]
Built = Embedder | RelayerError | None  # None is none that the settings name
Probe = int | Unavailable | None  # facts that a language model found; None: there is no model
SENTENCE = "user: I am Anna, and I have lived in Porto since 2019."
DISK_BYTES_MIN = 1 << 30
CLOCK_SKEW_S_MAX = 30  # nonces live by the database's clock, signatures by this machine's


# The beginning of a failure's words → what mends it; the address is that of whichever is set.
_ENDPOINT_DO = {
    "no connection": "start the endpoint, or mend RELAYER_EMBEDDING_BASE_URLS or OPENAI_BASE_URL",
    "timeout": "RELAYER_EMBEDDING_TIMEOUT_S=60, or give the model a faster machine",
    "status 3": "RELAYER_EMBEDDING_BASE_URLS, the address it points to: redirects are not followed",
    "status 401": "OPENAI_API_KEY=, the key that the endpoint wants",
    "status 403": "OPENAI_API_KEY=, a key that may use RELAYER_EMBEDDING_MODEL",
    "status 404": "RELAYER_EMBEDDING_BASE_URLS as it stands before /embeddings, mostly up to /v1, "
    "and RELAYER_EMBEDDING_MODEL as the endpoint calls it",
    "status 429": "look at the limits and the credit of the key in OPENAI_API_KEY",
    "status 4": "RELAYER_EMBEDDING_MODEL, a model that the endpoint has and that embeds texts",
}


async def examine(
    settings: Settings,
    key: str = "",
    *,
    language_model: LanguageModel | None = None,
    clock: Clock = utc_now,
) -> list[Finding]:
    """One finding per thing that can be wrong: `{check, ok, detail, do}`.

    `key` is the beginning of a public key to look up. `language_model` is the one that the settings
    name; it is asked once.
    """
    built = await asyncio.to_thread(_built, settings)  # reads all of a built-in model
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
            _swap(settings),
        ]
    finally:
        if built is not None and not isinstance(built, RelayerError):
            await built.close()


def _built(settings: Settings) -> Built:
    try:
        return building.build_embedder(settings)
    except RelayerError as error:
        return error


def _finding(check: str, ok: bool, detail: str, do: str = "") -> Finding:
    return {"check": check, "ok": ok, "detail": detail, "do": "" if ok else do}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return _finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _disk(settings: Settings) -> Finding:
    """Whether every folder that is written to lets itself be, and has room."""
    given = [settings.data_dir.absolute(), *(f.absolute() for f in write_folders(settings))]
    folders = [next(f for f in (one, *one.parents) if f.exists()) for one in given]
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            do = "look at how its disk is mounted, and whose it is"
            return _finding("disk", False, f"{folder} cannot be written to", do)
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    least = min(folders, key=lambda folder: free[folder])
    where = f" in {least}" if len(free) > 1 else ""
    detail = f"{free[least] / 2**30:.1f} GiB free{where}"
    return _finding("disk", free[least] >= DISK_BYTES_MIN, detail, f"make room in {least}")


def _model(settings: Settings, built: Built) -> Finding:
    needed = settings.embedder in ("builtin", "multilingual") or (
        settings.embedder == "auto" and not settings.embedding_model
    )
    published = named(settings.embedder)
    folder = model.folder_of(published, settings.model_dir)
    if needed:
        complete = not (isinstance(built, RelayerError) and built.code == model.MISSING)
    else:
        complete = model.is_complete(published, folder)
    detail = "complete" if complete else f"missing in {folder}" if needed else "not needed"
    return _finding("model", complete or not needed, detail, model.fetch_command(published))


async def _storage(
    settings: Settings, key: str, built: Built, probe: Probe, clock: Clock
) -> list[Finding]:
    do = f"read the message; then relayer serve{at(settings)}"
    try:
        async with as_found(settings, clock) as storage:
            found = [
                _finding("database", True, f"schema {head()}, answering"),
                *await _cluster(storage),
                await _clock(storage, clock),
                await _blobs(storage, settings),
                await _identity(storage, settings),
                await _index(storage, settings, built),
                await _facts(storage, settings, probe, clock),
            ]
            return [*found, await _key(storage, key, clock)] if key else found
    except NotInstalled as error:
        message, do = str(error), error.do
    except RelayerError as error:
        message = error.message
    except (SettingsError, IdentityError, PostgresError) as error:
        message = str(error)
    return [_finding("database", False, message, do)]


async def _cluster(storage: Storage) -> list[Finding]:
    """Whether all tables of a cluster's database are distributed, or none; nothing elsewhere."""
    found = await layout(storage.database)
    if found is None:
        return []
    detail = f"{len(found.distributed)} tables over {found.nodes} nodes"
    if found.is_partial:
        detail += f"; not distributed: {', '.join(found.missing)}"
    if found.left_behind:
        detail += f"; old rows still on the coordinator: {', '.join(found.left_behind)}"
    whole = not found.is_partial and not found.left_behind
    return [_finding("cluster", whole, detail, "relayer migrate --distributed")]


async def _clock(storage: Storage, clock: Clock) -> Finding:
    told, now = await database_clock(storage.database), clock()
    skew_s = abs((now - told).total_seconds())
    detail = f"{rfc3339(now)}, {skew_s:.0f} s off the database's"
    return _finding("clock", skew_s <= CLOCK_SKEW_S_MAX, detail, "sudo timedatectl set-ntp true")


async def _blobs(storage: Storage, settings: Settings) -> Finding:
    """Whether the blob store answers, and is the one that has the blobs."""
    do = "look at RELAYER_BLOB_STORE, what it names, and the RELAYER_S3_ variables of a bucket"
    try:
        await storage.blobs.marked(AccountId(bytes(32)))
        if storage.blobs.transactional:
            await refuse_blobs_elsewhere(storage.database)
            found = sample.Sample()
        else:
            found = await sample.take(storage)
    except Unavailable as error:
        return _finding("blobs", False, f"{settings.blob_store}: {error.message}", do)
    except SettingsError as error:
        return _finding("blobs", False, str(error), do)
    if not found.missing:
        return _finding("blobs", True, f"{settings.blob_store}, answering")
    if found.missing == found.looked:
        detail = f"{settings.blob_store}: {check.NONE_THERE} ({found.looked} looked for)"
        return _finding("blobs", False, detail, check.LOOK_AT_STORE)
    some = f"of {found.looked} blobs looked for, {found.missing} are not there or cannot be read"
    return _finding(
        "blobs", False, f"{settings.blob_store}: {some}", f"relayer check{at(settings)}"
    )


async def _identity(storage: Storage, settings: Settings) -> Finding:
    """Whether the accounts were last written by this relayer, not by one with another key."""
    ours = own_keys(storage, key_path(settings))
    writers = await last_writers(storage.database)
    others = sum(key not in ours for key in writers)
    detail = storage.identity.public_key.hex()
    if others:
        detail += f"; {others} of {len(writers)} accounts were last written by another key"
    return _finding(
        "identity",
        not others,
        detail,
        "put the old key file back (deploy/backup.md); relayer serve for one identity only",
    )


async def _index(storage: Storage, settings: Settings, built: Built) -> Finding:
    """Whether memories wait for another model or release, and nobody works on them."""
    try:
        versions = await reindex.running_versions(settings)
        if versions is None:
            if isinstance(built, RelayerError):
                raise built
            versions = reindex.versions_by(built)
        report = await reindex.examine(storage, versions)
    except Unavailable as error:
        do = f"relayer doctor{at(settings)}"
        return _finding("index", False, f"cannot tell: {error.message}", do)
    works = running_url(settings.data_dir) is not None or not report.total("waiting")
    return _finding("index", works, report.as_text(), f"relayer reindex{at(settings)}")


async def _probe(language_model: LanguageModel | None) -> Probe:
    """How many facts a language model finds in a sentence, or why it finds none."""
    if language_model is None:
        return None
    try:
        return len(await LlmExtractor(model=language_model).extract(Excerpt(SENTENCE)))
    except Unavailable as error:
        return error


async def _facts(storage: Storage, settings: Settings, probe: Probe, clock: Clock) -> Finding:
    """Who finds the facts of turns, whether it can now, and how often it could not of late."""
    found = await watch.failures(storage.database, clock())
    lately = (
        f"; turns of the last day that a model failed at: {found.failed} (last: {found.cause});"
        f" turns that wait: {found.waiting}"
        if found.failed
        else ""
    )
    if probe is None:
        set_one = f"relayer serve{at(settings)} --llm-model NAME (or RELAYER_LLM_MODEL) sets one"
        detail = f"from rules: no language model is set; {set_one}"
        return _finding("facts", True, detail + lately)
    model_name = f"the language model {settings.llm_model}"
    if isinstance(probe, Unavailable):
        detail = f"{model_name} fails ({cause_of(probe)}): turns wait, or rules take over"
        do = "look at RELAYER_LLM_MODEL, OPENAI_BASE_URL, OPENAI_API_KEY and the model's server"
        return _finding("facts", False, detail + lately, do)
    detail = f"from {model_name}" if probe else f"{model_name} finds none in a plain sentence"
    do = "name a model that follows instructions: RELAYER_LLM_MODEL"
    return _finding("facts", probe > 0, detail + lately, do)


async def _key(storage: Storage, beginning: str, clock: Clock) -> Finding:
    """What is known of a key, for a client that was refused."""
    add = "memrelay keys add --namespace NAME"  # which the owner of the account types
    rows = await statements.keys_beginning(storage.database, beginning.lower())
    if len(rows) != 1:
        detail = "several begin so" if rows else "unknown: no account here ever granted it anything"
        return _finding("key", False, detail, "give the whole public key" if rows else add)
    account, public_key = rows[0]["account_id"], rows[0]["public_key"].hex()
    keys = await storage.accounts.all_keys(account)
    entry = next(entry for entry in keys if entry["public_key"] == public_key)
    ended = entry["expires_at"] is not None and entry["expires_at"] <= str(rfc3339(clock()))
    state = "revoked" if entry["revoked"] else "expired" if ended else "valid"
    until = f" until {entry['expires_at']}" if entry["expires_at"] else ""
    scope = "the whole account" if entry["namespaces"] is None else ", ".join(entry["namespaces"])
    detail = f"{state}: {entry['role']} of {scope}{until} in account {account_text(account)}"
    return _finding("key", state == "valid", detail, add)


async def _embedder(settings: Settings, built: Built) -> list[Finding]:
    """Tell whether each endpoint, or the model that runs here, embeds a word."""
    if isinstance(built, RelayerError):
        do = model.fetch_command(named(settings.embedder))
        return [_finding("embedder", False, built.message, do)]
    if built is None:
        return [_finding("embedder", True, "none: recall by keyword only")]
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
        return _finding("embedder", False, f"{name}: {cause}", _do_about(cause))
    return _finding("embedder", True, f"{name}, embeds")


def _do_about(cause: str) -> str:
    """What to type where an endpoint does not embed, by the words of its failure."""
    if other := re.match(rf"{answers.DIMENSION}(\d+)", cause):
        return f"RELAYER_EMBEDDING_DIM={other[1]}, and restart"
    return next(
        (do for words, do in _ENDPOINT_DO.items() if cause.startswith(words)),
        "look at what answers at RELAYER_EMBEDDING_BASE_URLS, or OPENAI_BASE_URL, and at its log",
    )


def _server(settings: Settings) -> Finding:
    """Whether a relayer serves this folder, answers, and takes writes."""
    url, workers = running_url(settings.data_dir), running_workers(settings.data_dir)
    if url is None:
        return _finding("server", False, "not running", f"relayer serve{at(settings)}")
    detail = f"{url}, {workers} workers" if workers > 1 else url
    try:
        told = health.ask(settings.data_dir)
    except OSError as error:
        return _finding("server", False, str(error), "look at its log, or begin it anew")
    ready = told.get("write_ready", True)
    lacks = "" if ready else ", but takes no writes now"
    return _finding("server", ready, detail + lacks, "look at its log for write_ready.lost")


def _loopback(settings: Settings) -> Finding:
    found = open_to_this_machine(settings)
    detail = f"{' and '.join(found)} without a token for whoever asks at {settings.host}"
    if found:
        detail += "; behind a proxy on this machine, set RELAYER_PUBLIC_URL"
    return _finding("loopback", True, detail if found else "opens nothing by itself")


def _swap(settings: Settings) -> Finding:
    """Where keys and texts that are in memory may come to lie on a disk."""
    swaps, pid = process.plain_swaps(), running_pid(settings.data_dir)
    if swaps is None:
        return _finding("swap", True, "this system does not tell where it swaps to")
    detail = f"swap is on and not known to be encrypted: {', '.join(swaps)}"
    if not swaps:
        detail = "no swap on a disk that is not encrypted"
    if pid is not None and (locked := process.has_locked_memory(pid)) is not None:
        kept = "is" if locked else "is not"
        detail += f"; the memory of the running relayer {kept} kept out of it"
        if swaps and not locked:
            detail += " (LimitMEMLOCK=infinity in its service lets it, or `swapoff -a`)"
    return _finding("swap", True, detail)


def as_text(findings: list[Finding]) -> str:
    """One line a finding, and under it what to do."""
    lines = []
    for f in findings:
        lines.append(f"{'ok ' if f['ok'] else 'BAD'} {f['check']:9} {f['detail']}")
        if f["do"]:
            lines.append(f"              type: {f['do']}")
    return "\n".join(lines)
