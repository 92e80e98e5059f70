"""Reads memories that fit a query, sizes, keys and receipts; free of I/O.

It does not own carrying steps out (`sync_client.py`), trust and unlocking (`session.py`), lists
(`lists.py`) or what changes memories (`writes.py`) and keys (`keyholders.py`).

Source: SPEC.md §11.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memrelay.answers import Answer, rfc3339
from memrelay.config import ALIASES_MAX
from memrelay.errors import UntrustedRelayer
from memrelay.exchange import ANSWER_BYTES_MAX, LONG_ANSWER_BYTES_MAX, Operation, memories_bytes_max
from memrelay.models import (
    Account,
    Counts,
    KeyInfo,
    MemoryStatus,
    NamespaceInfo,
    Recalled,
    Reply,
    Stats,
    Usage,
)
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.receipts import (
    NO_HEAD,
    Checkpoint,
    Receipt,
    follow_receipts,
    read_checkpoint,
)
from memrelay.sealed.statement import Statement
from memrelay.session import Call, Session, parse_bytes

RECEIPTS_PAGE = 100
MIN_RELEVANCE = 0.3
Moment = datetime | str
Followed = Callable[[int, int], None]  # is told how many receipts were followed, and of how many


@dataclass(frozen=True, kw_only=True)
class Statuses(Answer):
    """The progress of some memories."""

    results: tuple[MemoryStatus, ...]


@dataclass(frozen=True, kw_only=True)
class NamespaceList(Answer):
    """The namespaces that a key may see."""

    namespaces: tuple[NamespaceInfo, ...]


@dataclass(frozen=True, kw_only=True)
class KeyList(Answer):
    """The keys of an account."""

    keys: tuple[KeyInfo, ...]


@dataclass(frozen=True, kw_only=True)
class ReceiptPage(Answer):
    """Receipts in base64, and where the chain ends for now: number and hash of the last one."""

    receipts: tuple[str, ...]
    seq: int
    head: str

    @property
    def receipt_bytes(self) -> list[bytes]:
        """The receipts' bytes.

        Raises:
            UntrustedRelayer: they are not in base64.
        """
        return [parse_bytes(text, "receipt") for text in self.receipts]


@dataclass(frozen=True, kw_only=True)
class SignedCheckpoint(Answer):
    """The state of an account's history, in base64."""

    checkpoint: str


class Reads:
    """The operations that change nothing, for one session."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def status(self, ids: Iterable[str]) -> Operation[tuple[MemoryStatus, ...]]:
        """Return how far up to 100 memories got."""
        body = {"ids": to_json_list("ids", ids)}
        call = Call(method="POST", path="/v1/memories/status", body=body, repeatable=True)
        return Statuses.from_json((yield from self.session.call(call))).results

    def recall(
        self,
        query: str,
        *,
        namespace: str | None = None,
        namespaces: Iterable[str] | None = None,
        limit: int = 10,
        mode: str | None = None,
        min_primary_results: int | None = None,
        vector_weight: float | None = None,
        text_weight: float | None = None,
        goal: str | None = None,
        aliases: Mapping[str, Iterable[str]] | None = None,
        kinds: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        speaker: str | None = None,
        metadata: Mapping[str, str] | None = None,
        writers: Iterable[str] | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        as_of: Moment | None = None,
        min_relevance: float | None = MIN_RELEVANCE,
        scoring_weights: Mapping[str, float] | None = None,
        max_tokens: int | None = None,
        deep: bool | None = None,
        explain: bool | None = None,
    ) -> Operation[Recalled]:
        """Return the memories that fit a query, best first.

        What each argument does, its bounds and its default are those of SPEC.md §12, but for two:
        `min_relevance` drops what is farther than 1 minus it, and None keeps everything; `aliases`
        come on top of those of the settings, and for a word that both have, in their place.

        Raises:
            ValueError: a text is given for a list, or more words have aliases than may.
        """
        body = {
            "query": query,
            "limit": limit,
            "mode": mode,
            "min_primary_results": min_primary_results,
            "vector_weight": vector_weight,
            "text_weight": text_weight,
            "goal": goal,
            "aliases": self._aliases(aliases or {}) or None,
            "source": source,
            "speaker": speaker,
            "metadata": None if metadata is None else dict(metadata),
            "writers": to_json_list("writers", writers),
            "min_relevance": min_relevance,
            "scoring_weights": None if scoring_weights is None else dict(scoring_weights),
            "max_tokens": max_tokens,
            "deep": deep,
            "explain": explain,
            **_build_narrowing(kinds, tags, after, before, as_of),
        }
        answer = yield from self.post(
            "/v1/recall",
            namespace,
            body,
            namespaces=namespaces,
            answer_bytes_max=memories_bytes_max(limit),
        )
        return Recalled.from_json(answer)

    def _aliases(self, added: Mapping[str, Iterable[str]]) -> dict[str, list[str] | None]:
        known = {**self.session.settings.aliases, **added}
        if len(known) > ALIASES_MAX:
            raise ValueError(
                f"aliases are of {ALIASES_MAX} words at most, those of the settings among them."
            )
        return {name: to_json_list("aliases", others) for name, others in known.items()}

    def ask(
        self,
        question: str,
        *,
        namespace: str | None = None,
        namespaces: Iterable[str] | None = None,
        limit: int = 5,
        kinds: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        as_of: Moment | None = None,
        deep: bool | None = None,
    ) -> Operation[Reply]:
        """Answer a question from memories; what may be among them is narrowed as for `recall`."""
        narrowing = _build_narrowing(kinds, tags, after, before, as_of)
        body = {"question": question, "limit": limit, "deep": deep, **narrowing}
        answer = yield from self.post(
            "/v1/ask",
            namespace,
            body,
            namespaces=namespaces,
            answer_bytes_max=memories_bytes_max(2 * limit if deep else limit),
        )
        return Reply.from_json(answer)

    def stats(self, *, namespace: str | None = None) -> Operation[Stats]:
        """Return the size of a namespace."""
        query = {"namespace": self.namespace_of(namespace)}
        return Stats.from_json((yield from self._get("/v1/stats", query)))

    def counts(
        self,
        bounds: Iterable[Moment],
        *,
        namespaces: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Operation[Counts]:
        """Return how many memories in recall were stored from each bound to the next, and by whom.

        They are counted in up to 16 namespaces, or in all that this key may read: the newest
        200,000, or up to `limit`.
        """
        body = {
            "bounds": [rfc3339(bound) for bound in bounds],
            "namespaces": None if namespaces is None else to_json_list("namespaces", namespaces),
            "limit": limit,
        }
        call = Call(method="POST", path="/v1/counts", body=drop_unset(body), repeatable=True)
        return Counts.from_json((yield from self.session.call(call)))

    def usage(self) -> Operation[Usage]:
        """Return what the account uses of what it may use."""
        return Usage.from_json((yield from self._get("/v1/usage")))

    def namespaces(self) -> Operation[tuple[NamespaceInfo, ...]]:
        """Return the namespaces that this key may see."""
        return NamespaceList.from_json((yield from self._get("/v1/namespaces"))).namespaces

    def granted(self) -> Operation[tuple[str, ...] | None]:
        """Return the namespaces whose keys this client holds; None means the whole account."""
        keyring = yield from self.session.keyring()
        return None if keyring.whole_account else keyring.names

    def held_by_others(self, namespace: str) -> Operation[bool]:
        """Return whether another key holds a namespace by name; only an owner sees all grants."""
        session = self.session
        ledger, own = (yield from session.ledger()), session.identity.public_key
        return ledger.names(normalise_namespace(namespace), session.now_ms(), but=own)

    def cannot_write(self, namespace: str) -> Operation[bool]:
        """Return whether this key holds grants, and none that lets it write in a namespace."""
        session, name = self.session, normalise_namespace(namespace)
        ledger = yield from session.ledger()
        held = ledger.list_grants_to(session.identity.public_key, session.now_ms())
        roles = {grant.role for grant in held if grant.whole_account or grant.names(name)}
        return bool(held) and not roles & {"owner", "writer"}

    def keys(self) -> Operation[tuple[KeyInfo, ...]]:
        """Return the keys of the account."""
        answer = yield from self._get("/v1/keys", answer_bytes_max=LONG_ANSWER_BYTES_MAX)
        return KeyList.from_json(answer).keys

    def account(self) -> Operation[Account]:
        """Return the account as the relayer describes it."""
        path = f"/v1/accounts/{self.session.settings.account_id}"
        return Account.from_json((yield from self._get(path)))

    def statement(self) -> Operation[Statement]:
        """Return the relayer's own statement, verified under the pinned key."""
        return (yield from self.session.statement())

    def health(self) -> Operation[dict[str, Any]]:
        """Return the relayer's `/health`, unsigned."""
        call = Call(method="GET", path="/health", signed=False, repeatable=True)
        return dict((yield from self.session.call(call)))

    def version(self) -> Operation[dict[str, Any]]:
        """Return the relayer's `/version`, unsigned."""
        call = Call(method="GET", path="/version", signed=False, repeatable=True)
        return dict((yield from self.session.call(call)))

    def receipts(self, *, progress: Followed | None = None) -> Operation[tuple[Receipt, ...]]:
        """Follow the account's history from where it was followed before; return what is new.

        It ends where the history ended when it began; what is written meanwhile is for the next
        time. `progress` is told how many were followed, of how many; a relayer may name any number
        and sign on and on, and whatever `progress` raises ends it.

        Raises:
            UntrustedRelayer: the chain breaks, or lacks a receipt that this client was given.
        """
        seen = self.session.trust_store.value
        known = {seen.receipt_seq: seen.receipt_head}
        relayers = yield from self.session.relayers()
        heirs = yield from self.session.heirs()
        seq = start = seen.checked_seq
        head = bytes.fromhex(seen.checked_head) if seq else NO_HEAD
        end: int | None = None
        followed: list[Receipt] = []
        while end is None or seq < end or followed[-1].relayer not in heirs:
            page = yield from self.receipt_page(seq, RECEIPTS_PAGE)
            if end is None:
                end = page.seq
                known.setdefault(end, page.head)
            found = follow_receipts(
                page.receipt_bytes,
                relayers=relayers,
                account=self.session.account,
                seq=seq,
                head=head,
            )
            if any(known.get(one.seq, one.digest.hex()) != one.digest.hex() for one in found):
                raise UntrustedRelayer("fork", "The relayer rewrote a receipt it had given.")
            if not found:
                break
            followed += found
            seq, head = found[-1].seq, found[-1].digest
            if progress is not None:
                progress(len(followed), max(seq, end) - start)
        if seq < max(seen.receipt_seq, end) or seq > page.seq:
            raise UntrustedRelayer("rollback", "The relayer withholds receipts.")
        if seq == page.seq and page.head != head.hex():
            raise UntrustedRelayer("fork", "The relayer's history is not the one it gave before.")
        if followed:
            yield from self.check_newest(followed[-1])
        self.session.note_checked(seq, head)
        return tuple(followed)

    def checkpoint(self) -> Operation[Checkpoint]:
        """Return where the account's history stands, verified, to keep and to compare."""
        answer = SignedCheckpoint.from_json((yield from self._get("/v1/checkpoint")))
        data = parse_bytes(answer.checkpoint, "checkpoint")
        # Not by a key before the pinned one: anybody can name that one as their heir.
        relayers = yield from self.session.heirs()
        return read_checkpoint(data, relayers=relayers, account=self.session.account)

    def check_newest(self, receipt: Receipt) -> Operation[None]:
        """Check that the pinned key, or one that it led to, stands for the chain that ends here.

        Raises:
            UntrustedRelayer: an earlier key signed it, and no checkpoint names it.
        """
        if receipt.relayer in (yield from self.session.heirs()):
            return
        stands = yield from self.checkpoint()
        if (stands.seq, stands.head) != (receipt.seq, receipt.digest):
            raise UntrustedRelayer("chain", "The pinned key does not stand for the receipts.")

    def receipt_page(self, after: int, limit: int) -> Operation[ReceiptPage]:
        """Return the receipts that follow one, as the relayer gives them."""
        answer = yield from self._get("/v1/receipts", {"after": after, "limit": limit})
        return ReceiptPage.from_json(answer)

    def _get(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Operation[Any]:
        call = Call(
            method="GET",
            path=path,
            query=query or {},
            repeatable=True,
            answer_bytes_max=answer_bytes_max,
        )
        return (yield from self.session.call(call))

    def post(
        self,
        path: str,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        namespaces: Iterable[str] | None = None,
        names_relayer: bool = False,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Operation[Any]:
        """Send a body about one namespace or several, with their keys, and return the answer."""
        several = to_json_list("namespaces", namespaces)
        if namespace is not None and several is not None:
            raise ValueError("Give a namespace or several namespaces, not both.")
        if several == []:
            raise ValueError("namespaces has no name in it; leave it out for the client's own.")
        names = several or [self.namespace_of(namespace)]
        for name in names:
            normalise_namespace(name)
        place = {"namespace": names[0]} if several is None else {"namespaces": names}
        call = Call(
            method="POST",
            path=path,
            body={**drop_unset(body), **place},
            unlock=names,
            repeatable=True,
            names_relayer=names_relayer,
            answer_bytes_max=answer_bytes_max,
        )
        return (yield from self.session.call(call))

    def namespace_of(self, namespace: str | None) -> str:
        """Return a namespace, or the client's own."""
        return self.session.settings.namespace if namespace is None else namespace


def _build_narrowing(
    kinds: Iterable[str] | None,
    tags: Iterable[str] | None,
    after: Moment | None,
    before: Moment | None,
    as_of: Moment | None,
) -> dict[str, Any]:
    return {
        "kinds": to_json_list("kinds", kinds),
        "tags": to_json_list("tags", tags),
        "after": None if after is None else rfc3339(after),
        "before": None if before is None else rfc3339(before),
        "as_of": None if as_of is None else rfc3339(as_of),
    }


def to_json_list(name: str, values: Iterable[str] | None) -> list[str] | None:
    """Return a list for JSON.

    Raises:
        ValueError: it is a text, which would be taken for a list of its letters.
    """
    if isinstance(values, str):
        raise ValueError(f"{name} is a list of texts, not one text.")
    return None if values is None else list(values)


def drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that were given."""
    return {name: value for name, value in values.items() if value is not None}


def segment(memory_id: str) -> str:
    """Return an id as a part of a path; one from outside must not lead to another route."""
    if not memory_id or any(not (char.isalnum() or char == "-") for char in memory_id):
        raise ValueError("An id has letters, digits and hyphens only.")
    return memory_id
