"""Accounts that cannot be founded: grants that found nothing, keys that may not (SPEC §4, §11).

Not here: who may found at all (`tests/routes/test_registration.py`), keys at the edges of the curve
(`curve.py`).
"""

import os
from collections.abc import Callable
from typing import Any

from tests import reference as ref
from tests.refusals.case import CANARY, Case
from tests.refusals.world import Account, Members, World, somebody

ROUTE = "POST /v1/accounts"
INVALID = (400, "grant.invalid")
Given = Callable[[World, Account], list[Members]]


def _case(name: str, given: Given, answer: tuple[int, str] = INVALID, **body: Any) -> Case:
    """Grants of a founder that nobody knows yet, signed by whom they name as issuer."""

    def build(w: World) -> bytes:
        account = Account()
        grants = [w.object("grant", m, account.founder) for m in given(w, account)]
        return w.change("/v1/accounts", {"grants": grants} | body, account.founder).sent()

    return Case(f"founding/{name}", ROUTE, build, *answer)


def _own(founding: Account, **changes: Any) -> Members:
    return founding.grant(founding.founder, "owner", serial=1) | changes


def _founded(w: World, signer: ref.Signer, account: Account, **body: Any) -> bytes:
    grants = [w.object("grant", _own(account), account.founder)]
    return w.change("/v1/accounts", {"grants": grants} | body, signer).sent()


def _existing(w: World) -> bytes:
    return _founded(w, w.foreign.founder, w.foreign)


def _member(w: World) -> bytes:
    """A key that belongs to an account founds one of its own."""
    return _founded(w, w.agent, Account(founder=w.agent))


def _another(w: World) -> bytes:
    """Somebody sends what another founder signed."""
    return _founded(w, somebody(), Account())


def _named(w: World) -> bytes:
    account = Account()
    grants = [w.object("grant", _own(account), account.founder)]
    request = w.asked(
        "/v1/accounts",
        {"relayer": w.relayer.hex, "grants": grants},
        account.founder,
        account=w.foreign.text,
    )
    return request.sent()


def _elsewhere(w: World) -> bytes:
    account = Account()
    grants = [w.object("grant", _own(account), account.founder)]
    body = {"relayer": "ab" * 32, "grants": grants}
    return w.asked("/v1/accounts", body, account.founder).sent()


def _by_proxy(w: World) -> bytes:
    account = Account()
    grants = [w.object("grant", _own(account), account.founder)]
    request = w.change("/v1/accounts", {"grants": grants}, account.founder)
    return request.sent(lines=[b"x-forwarded-for: 127.0.0.1"])


def _by_another_name(w: World) -> bytes:
    """A web page that made its own name point to this machine."""
    return _founded(w, (account := Account()).founder, account).replace(
        b"host: 127.0.0.1", b"host: evil.example.org"
    )


def _wrong_token(w: World) -> bytes:
    account = Account()
    return _founded(w, account.founder, account, token=CANARY).replace(
        b"host: 127.0.0.1", b"host: evil.example.org"
    )


def _custodian(w: World, account: Account, **changes: Any) -> Members:
    return account.grant(w.relayer, "custodian", serial=changes.get("serial", 2)) | changes


def _foreign_box(w: World, account: Account) -> list[Members]:
    box = account.grant(w.relayer, "custodian", serial=2, keys=[ref.Root(os.urandom(32))])["box"]
    return [_own(account), _custodian(w, account, box=box)]


def _moved_box(w: World, account: Account) -> list[Members]:
    """The box of another grant: its inside names another serial."""
    box = account.grant(w.relayer, "custodian", serial=3)["box"]
    return [_own(account), _custodian(w, account, box=box)]


TOKEN = (403, "registration.token")
CASES = [
    _case("serial-2-first", lambda w, a: [_own(a, serial=2)]),
    _case("serial-0", lambda w, a: [_own(a, serial=0)]),
    _case("the-same-grant-twice", lambda w, a: [_own(a)] * 2),
    _case("founder-as-a-writer", lambda w, a: [_own(a, role="writer")]),
    _case("founder-as-a-custodian", lambda w, a: [_own(a, role="custodian")]),
    _case("founder-of-a-namespace", lambda w, a: [_own(a, scope=[a.namespace().scope()])]),
    _case("to-another-key", lambda w, a: [_own(a, recipient=somebody().hex)]),
    _case("account-of-another-key", lambda w, a: [_own(a, account=w.foreign.text)]),
    _case("issuer-is-somebody-else", lambda w, a: [_own(a, issuer=somebody().hex)]),
    _case("created-beyond-the-year-9999", lambda w, a: [_own(a, created=253_402_300_800_000)]),
    _case("expires-beyond-the-year-9999", lambda w, a: [_own(a, expires=2**53 - 1)]),
    _case("epoch-beyond-what-is-stored", lambda w, a: [
        _own(a, scope=[a.root.scope() | {"epoch": 2**31 - 1}])]),
    _case("a-member-who-did-not-join", lambda w, a: [
        _own(a), a.grant(somebody(), "reader", serial=2)]),
    _case("a-custodian-elsewhere", lambda w, a: [
        _own(a), a.grant(somebody(), "custodian", serial=2)]),
    _case("custodian-first", lambda w, a: [_custodian(w, a, serial=1), _own(a, serial=2)]),
    _case("the-relayer-as-an-owner", lambda w, a: [_own(a), a.grant(w.relayer, "owner", serial=2)]),
    _case("the-relayer-as-a-reader", lambda w, a: [
        _own(a), a.grant(w.relayer, "reader", serial=2)]),
    _case("custodian-whose-box-has-another-root", _foreign_box),
    _case("custodian-whose-box-is-of-another-grant", _moved_box),
    _case("custodian-whose-box-is-empty", lambda w, a: [_own(a), _custodian(w, a, box="")]),
    _case("custodian-with-a-gap-in-serials", lambda w, a: [_own(a), _custodian(w, a, serial=3)]),
    _case("label-with-a-control", lambda w, a: [_own(a)], (400, "request.invalid"),
          label=f"{CANARY}\n"),
    Case("founding/account-that-exists", ROUTE, _existing, 409, "account.exists"),
    Case("founding/key-of-another-account", ROUTE, _member, 409, "key.taken"),
    Case("founding/grant-of-another-founder", ROUTE, _another, *INVALID),
    Case("founding/naming-another-account", ROUTE, _named, 401, "auth.rejected"),
    Case("founding/for-another-relayer", ROUTE, _elsewhere, 400, "relayer.other"),
    Case("founding/through-a-proxy-without-a-token", ROUTE, _by_proxy, *TOKEN),
    Case("founding/by-another-host-name-without-a-token", ROUTE, _by_another_name, *TOKEN),
    Case("founding/by-another-host-name-with-a-wrong-token", ROUTE, _wrong_token, *TOKEN),
]  # fmt: skip
