"""The checks of the key: is it accepted, what does it hold, and does memory work with it.

It does not own why it is refused (`refusals.py`).
"""

import secrets
import shlex
from datetime import UTC, datetime

from memrelay.doctor.case import Case
from memrelay.doctor.findings import Verdict, ok, problem, skip, warning
from memrelay.doctor.refusals import refusal
from memrelay.errors import Invalid, server_error
from memrelay.extraction import RULES, failures, source_of_facts
from memrelay.local_relayer import ENVIRONMENT, SOCKET
from memrelay.local_time import when
from memrelay.plurals import format_count
from memrelay.sealed.grants import Grant, NamespaceScope
from memrelay.sealed.keys import mask_key, normalise_namespace
from memrelay.transport import httpx
from memrelay.unix_sockets import parse_socket

STORAGE_WARN = 0.9  # of what the account may store
ROOM_BYTES_MIN = 8 * 1024  # what a sentence and its index take, roughly
EXPIRY_WARN_S = 7 * 86_400


def check_key(case: Case) -> Verdict:
    """Tell whether the relayer accepts a request of this key for this account, or why not."""
    response = case.inquiry.get_signed(case.settings.account_id)
    if response.is_success:
        return ok(f"{case.settings.masked_key} is accepted")
    if response.status_code != httpx.codes.UNAUTHORIZED:
        error = server_error(response.status_code, None, response.headers)
        return problem(str(error), "relayer doctor")
    found = refusal(
        case.inquiry,
        response,
        case.settings,
        seen=case.trust_state,
        owner=case.owner(),
        now=case.now(),
    )
    begin = case.settings.identity.public_key.hex()[:8]
    commands = {
        "clock": case.set_clock(),
        "account": case.correct("account_id", "ID"),
        "expired": case.renew(),
        "revoked": case.renew(),
        "ungranted": case.renew(),
        "unknown account": "relayer account list",
        "unclear": f"relayer doctor --key {begin}",
    }
    return problem(found.detail, commands[found.cause])


def check_grants(case: Case) -> Verdict:
    """Tell what this key holds, by grants that lead back to the founder."""
    try:
        held = case.valid_grants
    except Invalid as error:
        return problem(f"What the relayer shows does not hold: {error}", "relayer check")
    roles = ", ".join(sorted({grant.role for grant in held}))
    return ok(f"{roles} of {', '.join(_names(held)) or 'the whole account'}")


def check_namespace(case: Case) -> Verdict:
    """Tell whether this key holds the namespace that the profile works in, and for how long."""
    name = normalise_namespace(case.settings.namespace)
    covering = [
        grant for grant in case.valid_grants if grant.whole_account or name in _names([grant])
    ]
    if not covering:
        names = _names(case.valid_grants)
        detail = f"This key does not hold the namespace {name}; it holds {', '.join(names)}."
        return problem(detail, case.correct("namespace", names[0]))
    ends = [grant.expires_ms for grant in covering if grant.expires_ms is not None]
    if len(ends) == len(covering) and max(ends) / 1000 - case.clock() < EXPIRY_WARN_S:
        end = datetime.fromtimestamp(max(ends) / 1000, UTC)
        return warning(f"The grant of {name} ends at {when(end)}.", case.prolong())
    return ok(f"{name} is held")


def _names(grants: list[Grant]) -> list[str]:
    entries = [entry for grant in grants for entry in grant.scope]
    return sorted({entry.namespace for entry in entries if isinstance(entry, NamespaceScope)})


def check_custody(case: Case) -> Verdict:
    """Tell whether the client sends the keys that the account needs."""
    custody = case.client.account().custody
    if custody != "managed" and case.settings.custody == "managed":
        detail = "The account is sealed, but this client is set to send no keys."
        return problem(detail, case.correct("custody", "auto"))
    return ok(f"the account is {custody}")


def check_storage(case: Case) -> Verdict:
    """Tell how much of its storage the account uses."""
    usage = case.usage
    if usage.storage_bytes_max is None:
        return ok(
            f"{format_count(usage.memory_count, 'memory')}, "
            f"{format_count(usage.used_bytes, 'byte')}"
        )
    left = usage.storage_bytes_max - usage.used_bytes
    share = usage.used_bytes / max(usage.storage_bytes_max, 1)
    stored = format_count(usage.memory_count, "memory")
    detail = f"{share:.0%} of what the account may store is used, by {stored}"
    if left < ROOM_BYTES_MIN:
        return problem(f"{detail}: there is no room for more.", case.command("forget ID"))
    if share >= STORAGE_WARN:
        return warning(f"{detail}.", case.command("forget ID"))
    return ok(detail)


def check_recalls(case: Case) -> Verdict:
    """Tell whether the relayer counts which memories are recalled."""
    if case.client.account_settings().count_recalls:
        return ok("counted for each memory, as `memrelay settings` says")
    return ok("not counted")


def check_facts(case: Case) -> Verdict:
    """Tell who finds the facts of what is said, and whether it can."""
    extraction = case.usage.extraction
    if extraction is None:
        return ok("the relayer does not tell how it finds facts")
    if extraction.extractor == RULES:  # as its operator chose
        source = f"{source_of_facts(extraction)}; RELAYER_LLM_MODEL of the relayer sets one"
        if case.is_owner:
            return warning(f"{source[0].upper()}{source[1:]}.", _choose_model(case))
        return ok(source)
    if told := failures(extraction):
        return warning(f"{told[0].upper()}{told[1:]}.", "relayer doctor")
    return ok(source_of_facts(extraction))


def _choose_model(case: Case) -> str:
    """Return the command that gives a relayer a model: one that is started here reads a file."""
    socket = parse_socket(case.settings.url)
    if socket is None or socket.name != SOCKET:
        return "relayer serve --llm-model NAME"
    file = shlex.quote(str(socket.parent / ENVIRONMENT))
    stop = case.command("local stop")
    return f"echo RELAYER_LLM_MODEL=NAME >>{file} && chmod 600 {file} && {stop}"


def check_other_keys(case: Case) -> Verdict:
    """Tell an owner which other keys end soon: their agents would forget from one day on."""
    if not case.is_owner:
        return skip("only an owner sees the other keys")
    held = case.client.grants().holders(int(case.clock() * 1000))
    held.pop(case.settings.identity.public_key, None)
    ends = {key.hex(): end for key, grants in held.items() if (end := _find_end(grants))}
    soon = {key: end for key, end in ends.items() if end - case.clock() < EXPIRY_WARN_S}
    if not soon:
        days = EXPIRY_WARN_S // 86_400
        return ok(f"{format_count(len(held), 'other key')}, none of which ends within {days} days")
    names = {**_list_labels(case), **case.list_agents()}
    told = [
        f"{names.get(key) or mask_key(key)} at {when(datetime.fromtimestamp(end, UTC))}"
        for key, end in sorted(soon.items(), key=lambda item: item[1])
    ]
    agent = next((names[key] for key in soon if key in case.list_agents()), "NAME")
    return warning(
        f"Soon these keys end: {', '.join(told)}.", case.agents(f"rotate {agent} --expires 90d")
    )


def _find_end(grants: list[Grant]) -> float | None:
    """Return the time, in Unix seconds, from which a key holds nothing; None if it has no end."""
    ends = [grant.expires_ms for grant in grants]
    return None if None in ends else max(end for end in ends if end is not None) / 1000


def _list_labels(case: Case) -> dict[str, str]:
    infos = case.client.keys()
    return {info.public_key: info.label for info in infos if info.label}


def check_search(case: Case) -> Verdict:
    """Tell whether memories are found, and by meaning, too."""
    # A look at the past: it is not counted as a use of what it finds.
    now = case.now()
    found = case.client.recall("memrelay doctor", limit=1, min_relevance=None, as_of=now)
    if found.dropped_count:
        return warning(
            f"{format_count(found.dropped_count, 'memory')} could not be opened.", "relayer check"
        )
    if found.degraded and case.client.usage().unrestored:
        detail = (
            "The relayer lost its database, and not all memories are back: they come back with "
            "the first recall in their namespace."
        )
        return warning(detail, "memrelay recall WORDS --namespace NAME")
    if found.degraded:
        detail = "Memories are found by their words only: the relayer's embedder is away."
        return warning(detail, "relayer doctor")
    told = "memories are found by words and by meaning"
    if found.estimated:
        return ok(f"{told}; of so many, distances of what is not shown are estimated")
    return ok(told)


def check_probe(case: Case) -> Verdict:
    """Store a memory, find it and forget it."""
    if all(grant.role == "reader" for grant in case.valid_grants):
        return skip("this key only reads")
    word = secrets.token_hex(8)
    stored = case.client.remember(f"memrelay doctor probes with the word {word}.")
    try:
        found = case.client.recall(word, mode="keyword", limit=1, min_relevance=None).results
    finally:
        case.client.forget(stored.id)
    if [memory.id for memory in found] != [stored.id]:
        return problem("A memory was stored, but not found.", "relayer doctor")
    return ok("a memory was stored, found and forgotten")
