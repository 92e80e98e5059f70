"""Erases a memory, several, those that fit, a namespace or the account; free of I/O.

It does not own what else changes memories (`writes.py`, `corrections.py`).

- Erasing is bounded per request: what is more goes on with the next one, until nothing is left.
- Repeating does no harm: what is gone is told to be gone.
- Every receipt that comes with an answer is verified, and must name what is told to be erased.

Source: SPEC.md §14.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Literal, Unpack, get_args
from urllib.parse import quote

from memrelay.answers import make_malformed_error
from memrelay.errors import ConfigError, UntrustedRelayer
from memrelay.exchange import Operation
from memrelay.models import Forgotten, NamespaceInfo
from memrelay.operations.corrections import Corrections, check_same_id
from memrelay.operations.lists import Filters, build_filters
from memrelay.operations.reads import segment, to_json_list
from memrelay.outcomes import AccountClosed, ForgottenMany
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.receipts import RequestState
from memrelay.session import Call

FORGET_IDS_MAX = 100  # in one request
IDS_TOLD_MAX = 100
_READ_TO_MATCH = frozenset({"tags", "source"})  # found by keyed hashes

IndexKind = Literal["searchable", "sealed"]
INDEXES: tuple[IndexKind, ...] = get_args(IndexKind)
Erased = Callable[[int], None]  # is told how many were erased so far


@dataclass(frozen=True, kw_only=True)
class KeptNamespace(NamespaceInfo):
    """A namespace whose memories keep another time; with `more`, only so many do by now."""

    changed: int = 0
    more: bool = False

    def info(self) -> NamespaceInfo:
        """The namespace itself."""
        return NamespaceInfo(**{one.name: getattr(self, one.name) for one in fields(NamespaceInfo)})


class Deletion(Corrections):
    """The operations that erase, and all others on memories."""

    def forget(self, memory_id: str) -> Operation[Forgotten]:
        """Erase one memory with its history; the same words may be remembered anew later."""
        path = f"/v1/memories/{segment(memory_id)}"
        call = Call(method="DELETE", path=path, names_relayer=True, repeatable=True)
        asked = self.session.note_request()
        result = Forgotten.from_json((yield from self.session.call(call)))
        recorded = yield from self.read_recorded_ids(result.receipts, op="forget", asked=asked)
        if result.receipt is not None and result.receipt not in result.receipts:
            recorded |= yield from self.read_recorded_ids(
                [result.receipt], op="forget", asked=asked
            )
        check_same_id(memory_id, result.id)
        if result.erased and not result.already and result.id not in recorded:
            raise UntrustedRelayer("receipt", "A receipt leaves out what was erased.")
        return result

    def forget_many(
        self, ids: Iterable[str], *, dry_run: bool = False, progress: Erased | None = None
    ) -> Operation[ForgottenMany]:
        """Erase the memories of these ids; `results` tells what became of each.

        Raises:
            NotAllowed: one of them is of a namespace that this key may only read; of the request
                of up to 100 that it was in, none was erased.
        """
        wanted = list(dict.fromkeys(to_json_list("ids", ids) or []))
        total = _NOTHING
        for start in range(0, len(wanted), FORGET_IDS_MAX):
            some = wanted[start : start + FORGET_IDS_MAX]
            found = yield from self._forget({"ids": some, "dry_run": dry_run}, None)
            for asked, told in zip_longest(some, found.results or ()):
                check_same_id(asked or "", told.id if told else "")
            total = _sum(total, found)
            if progress is not None:
                progress(total.erased)
        return total

    def forget_matching(
        self,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        progress: Erased | None = None,
        **filters: Unpack[Filters],
    ) -> Operation[ForgottenMany]:
        """Erase what a list with these filters shows, all of it, with its history.

        Raises:
            ConfigError: there is no filter, or one of no tags; `forget_namespace` erases all.
        """
        narrowing = build_filters(filters)
        if filters.get("tags") is not None and "tags" not in narrowing:
            raise ConfigError("tags names none: without it, this would forget more than that.")
        if not narrowing:
            raise ConfigError("Without a filter, this would forget everything in the namespace.")
        return (yield from self._forget_matching(namespace, narrowing, dry_run, progress))

    def forgettable(self, *, namespace: str | None = None) -> Operation[ForgottenMany]:
        """Return what `forget_namespace` would erase; nothing is."""
        return (yield from self._forget_matching(namespace, {"state": "all"}, True, None))

    def _forget_matching(
        self,
        namespace: str | None,
        narrowing: Mapping[str, Any],
        dry_run: bool,
        progress: Erased | None,
    ) -> Operation[ForgottenMany]:
        name = self.namespace_of(namespace)
        unlock = [name] if _READ_TO_MATCH.intersection(narrowing) else None
        body = {"namespace": name, **narrowing, "dry_run": dry_run}
        total = _NOTHING
        while True:
            found = yield from self._forget(body, unlock)
            total = _further(total, found)
            if progress is not None:
                progress(total.erased)
            if dry_run or not found.more:
                return total

    def _forget(
        self, body: Mapping[str, Any], unlock: Iterable[str] | None
    ) -> Operation[ForgottenMany]:
        asked = self.session.note_request([body["namespace"]] if "namespace" in body else None)
        answer = yield from self.session.call(
            Call(
                method="POST",
                path="/v1/forget",
                body=body,
                unlock=unlock,
                names_relayer=True,
                repeatable=True,
            )
        )
        result = ForgottenMany.from_json(answer)
        yield from self._check_erased(result, body["dry_run"], asked)
        return result

    def _check_erased(
        self, result: ForgottenMany, dry_run: bool, asked: RequestState
    ) -> Operation[None]:
        recorded = yield from self.read_recorded_ids(result.receipts, op="forget", asked=asked)
        told = {one.id for one in result.results or () if one.status == "erased"}
        erased = set() if dry_run else told or set(result.ids)
        if result.more and not result.erased and not dry_run:
            raise make_malformed_error("a part that erased nothing")
        if not recorded.issuperset(erased) or (len(recorded) < result.erased and not dry_run):
            raise UntrustedRelayer("receipt", "A receipt leaves out what was erased.")

    def forget_namespace(
        self, name: str, *, progress: Erased | None = None
    ) -> Operation[ForgottenMany]:
        """Erase everything in a namespace, whatever its state, and the namespace with it."""
        path = f"/v1/namespaces/{_name_segment(name)}"
        total = _NOTHING
        while True:
            call = Call(method="DELETE", path=path, names_relayer=True, repeatable=True)
            asked = self.session.note_request([name])
            found = ForgottenMany.from_json((yield from self.session.call(call)))
            yield from self._check_erased(found, False, asked)
            total = _further(total, found)
            if progress is not None:
                progress(total.erased)
            if not found.more:
                return total

    def set_ttl(self, name: str, ttl_s: int | None) -> Operation[NamespaceInfo]:
        """Let memories of a namespace expire so many seconds after they were stored; None: never.

        It counts for those that are there as well, except pinned ones.
        """
        path = f"/v1/namespaces/{_name_segment(name)}"
        call = Call(
            method="PUT", path=path, body={"ttl_s": ttl_s}, names_relayer=True, repeatable=True
        )
        while True:
            kept = KeptNamespace.from_json((yield from self.session.call(call)))
            if not kept.more:
                return kept.info()
            if not kept.changed:
                raise make_malformed_error("a part that changed nothing")

    def set_index(self, name: str, index: IndexKind) -> Operation[NamespaceInfo]:
        """Choose what finds a namespace's memories: a `sealed` index, or a `searchable` one.

        The relayer moves what is there behind it, as long as it is lent the namespace's key.
        """
        call = Call(
            method="PUT",
            path=f"/v1/namespaces/{_name_segment(name)}",
            body={"index": index},
            names_relayer=True,
            repeatable=True,
        )
        return KeptNamespace.from_json((yield from self.session.call(call))).info()

    def close_account(self) -> Operation[AccountClosed]:
        """Erase the account: memories, grants, keys and history; nobody can found it again.

        Raises:
            UntrustedRelayer: the relayer gave no receipt for it.
        """
        account_id = self.session.settings.account_id
        call = Call(
            method="DELETE",
            path=f"/v1/accounts/{account_id}",
            query={"confirm": account_id},
            names_relayer=True,
        )
        answer = yield from self.session.call(call)
        result = AccountClosed.from_json(answer)
        if not (result.closed and result.receipts):
            raise UntrustedRelayer("receipt", "The account was closed without a receipt.")
        for receipt in result.receipts:
            yield from self.session.note_receipt(receipt, op="close")
        return result


_NOTHING = ForgottenMany(matched=0, erased=0)


def _sum(before: ForgottenMany, found: ForgottenMany) -> ForgottenMany:
    results = (*(before.results or ()), *(found.results or ()))
    return ForgottenMany(
        matched=before.matched + found.matched,
        erased=before.erased + found.erased,
        more=found.more,
        pending=before.pending or found.pending,
        ids=(*before.ids, *found.ids)[:IDS_TOLD_MAX],
        receipts=(*before.receipts, *found.receipts),
        results=results or None,
    )


def _further(before: ForgottenMany, found: ForgottenMany) -> ForgottenMany:
    # What is left counts as matching again.
    return replace(_sum(before, found), matched=max(before.matched, found.matched))


def _name_segment(name: str) -> str:
    return quote(normalise_namespace(name), safe="")
