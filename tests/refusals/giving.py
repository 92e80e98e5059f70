"""Grants, joins, revocations and rotations that a sealed account's relayer refuses (SPEC §4, §16).

Not here: the same rules at the level of the format (`tests/scenarios_grants.py`); boxes, which only
their recipients open; founding (`founding.py`).
"""

import os
from collections.abc import Callable
from typing import Any

from tests import reference as ref
from tests.refusals.case import CANARY, Builder, Case
from tests.refusals.world import Members, World, somebody

GRANTS, REVOCATIONS, ROTATIONS = "POST /v1/grants", "POST /v1/revocations", "POST /v1/rotations"
INVALID = (400, "grant.invalid")
Change = Callable[[World], Members]


def _case(
    name: str, build: Builder, answer: tuple[int, str] = INVALID, route: str = GRANTS
) -> Case:
    return Case(f"{route}/{name}", route, build, *answer)


def _granted(change: Change, *, answer: tuple[int, str] = INVALID, name: str) -> Case:
    """A grant of the founder's that says something wrong, and is signed and joined rightly."""

    def build(w: World) -> bytes:
        recipient, account = somebody(), w.sealed
        members = account.grant(recipient, "writer", keys=[account.namespace()]) | change(w)
        return w.change(
            GRANTS.split()[1], w.joining(account, members, recipient), account.founder
        ).sent()

    return _case(name, build, answer)


def members() -> list[Case]:
    """Members of a grant out of form or against the rules."""

    def scoped(**changes: Any) -> Change:
        return lambda w: {"scope": [w.sealed.namespace().scope() | changes]}

    root: Change = lambda w: {"scope": [w.sealed.root.scope()]}  # noqa: E731
    wrong: dict[str, Change] = {
        "account-of-somebody-else": lambda w: {"account": w.foreign.text},
        "account-in-upper-case": lambda w: {"account": "0x" + w.sealed.text[2:].upper()},
        "grant-no-uuid": lambda w: {"grant": CANARY},
        "grant-in-upper-case": lambda w: {"grant": "0B5E9F3C-2D1A-4C8B-9E7F-112233445566"},
        "serial-text": lambda w: {"serial": str(w.sealed.serial + 1)},
        "serial-0": lambda w: {"serial": 0},
        "serial-true": lambda w: {"serial": True},
        "role-unknown": lambda w: {"role": "admin"},
        "role-in-upper-case": lambda w: {"role": "Writer"},
        "role-null": lambda w: {"role": None},
        "owner-of-a-namespace": lambda w: {"role": "owner"},
        "custodian-of-a-namespace": lambda w: {"role": "custodian"},
        "custodian-elsewhere-whose-box-is-not-ours": lambda w: {"role": "custodian"} | root(w),
        "scope-empty": lambda w: {"scope": []},
        "scope-of-a-name-that-looks-like-another": scoped(ns="te\u200bam"),
        "scope-an-object": lambda w: {"scope": {}},
        "scope-twice-the-same": lambda w: {"scope": [w.sealed.namespace().scope()] * 2},
        "scope-of-roots-and-namespaces": lambda w: {
            "scope": [w.sealed.namespace().scope(), w.sealed.root.scope()]
        },
        "scope-of-257-entries": lambda w: {
            "scope": [w.sealed.namespace(f"n{n}").scope() for n in range(257)]
        },
        "scope-with-a-wildcard": scoped(ns=None),
        "scope-with-a-refused-name": scoped(ns="te\tam"),
        "scope-with-an-unsettled-name": scoped(ns=" team"),
        "scope-epoch-0": scoped(epoch=0),
        "scope-epoch-beyond-32-bits": scoped(epoch=2**32),
        "scope-epoch-text": scoped(epoch="1"),
        "scope-key-id-short": scoped(key_id="ab" * 31),
        "scope-key-id-in-upper-case": scoped(key_id="AB" * 32),
        "scope-entry-unknown-member": scoped(more=1),
        "epoch-that-no-rotation-began": scoped(epoch=2),
        "created-text": lambda w: {"created": "now"},
        "created-negative": lambda w: {"created": -1},
        "created-beyond-the-year-9999": lambda w: {"created": 253_402_300_800_000},
        "expires-beyond-the-year-9999": lambda w: {"expires": 2**53 - 1},
        "expires-0": lambda w: {"expires": 0},
        "expires-float": lambda w: {"expires": 1.5},
        "box-no-base64": lambda w: {"box": "*"},
        "box-a-list": lambda w: {"box": []},
        "version-2": lambda w: {"v": 2},
        "unknown-member": lambda w: {CANARY: 1},
        "recipient-short": lambda w: {"recipient": "ab" * 31},
        "recipient-of-small-order": lambda w: {"recipient": "00" * 32},
        "recipient-not-a-point": lambda w: {"recipient": "02" + "00" * 31},
        "recipient-not-reduced": lambda w: {"recipient": "ee" + "ff" * 30 + "7f"},
        "issuer-is-nobody": lambda w: {"issuer": "ab" * 32},
        "issuer-is-another-member": lambda w: {"issuer": w.agent.hex},
    }
    due = (409, "grant.serial")
    return [
        *(_granted(change, name=name) for name, change in wrong.items()),
        _granted(lambda w: {"serial": w.sealed.serial}, name="serial-of-before", answer=due),
        _granted(lambda w: {"serial": 1}, name="serial-1-again", answer=due),
        _granted(lambda w: {"serial": w.sealed.serial + 2}, name="serial-skipped", answer=due),
    ]


def signing() -> list[Case]:
    """Grants that are not signed as they say, or not strict JSON."""

    def altered(change: Callable[[bytes], bytes], *, resign: bool = False) -> Builder:
        def build(w: World) -> bytes:
            account, recipient = w.sealed, somebody()
            members = account.grant(recipient, "reader", keys=[account.namespace()])
            body = w.joining(account, members, recipient)
            payload = ref.compact(members)
            signed = account.founder.signed("grant", payload)
            raw = account.founder.signed("grant", change(payload)) if resign else change(signed)
            return w.change("/v1/grants", body | {"grant": ref.b64(raw)}, account.founder).sent()

        return build

    def signed_by(signer: Callable[[World], ref.Signer], kind: str = "grant") -> Builder:
        def build(w: World) -> bytes:
            account, recipient = w.sealed, somebody()
            members = account.grant(recipient, "reader", keys=[account.namespace()])
            body = w.joining(account, members, recipient)
            body["grant"] = w.object(kind, members, signer(w))
            return w.change("/v1/grants", body, account.founder).sent()

        return build

    def moved(w: World) -> bytes:
        """The founder's own grant of the foreign account, brought here."""
        members = w.foreign.grant(w.foreign.founder, "owner", serial=w.sealed.serial + 1)
        body = w.joining(w.foreign, members, w.foreign.founder)
        return w.change("/v1/grants", body, w.sealed.founder).sent()

    def text(value: str) -> Builder:
        return lambda w: w.change(
            "/v1/grants", {"grant": value, "join": "AAAA"}, w.sealed.founder
        ).sent()

    malformed = (400, "request.invalid")
    return [
        _case("unsigned", altered(lambda g: g[:-64])),
        _case("signature-zero", altered(lambda g: g[:-64] + bytes(64))),
        _case("signature-cut", altered(lambda g: g[:-1])),
        _case("role-raised-after-signing", altered(lambda g: g.replace(b'"reader"', b'"writer"'))),
        _case("scope-widened-after-signing", altered(lambda g: g.replace(b'"team"', b'"teams"'))),
        _case("signed-by-another-member", signed_by(lambda w: w.agent)),
        _case("signed-by-a-stranger", signed_by(lambda w: w.foreign.founder)),
        _case("signed-as-a-revocation", signed_by(lambda w: w.sealed.founder, "revoke")),
        _case("signed-as-a-join", signed_by(lambda w: w.sealed.founder, "join")),
        _case("of-another-account", moved),
        _case("member-twice", altered(lambda p: p[:-1] + b',"role":"owner"}', resign=True)),
        _case("float", altered(lambda p: p.replace(b':null', b':1e15'), resign=True)),
        _case("nan", altered(lambda p: p.replace(b':null', b':NaN'), resign=True)),
        _case("byte-order-mark", altered(lambda p: b"\xef\xbb\xbf" + p, resign=True)),
        _case("garbage-behind", altered(lambda p: p + b" x", resign=True)),
        _case("not-utf-8", altered(lambda p: p.replace(b"team", b"te\xffm"), resign=True)),
        _case("lone-surrogate", altered(lambda p: p.replace(b"team", b"\\ud800"), resign=True)),
        _case("integer-beyond-53-bits", altered(
            lambda p: p.replace(b'"expires":null', b'"expires":9007199254740993'), resign=True)),
        _case("too-deep", altered(
            lambda p: p[:-1] + b',"a":' + b"[" * 9 + b"]" * 9 + b"}", resign=True)),
        _case("over-64-kib", altered(lambda p: p + b" " * 70_000, resign=True)),
        _case("list-at-the-top", altered(lambda p: b"[" + p + b"]", resign=True)),
        _case("nothing", text("")),
        _case("three-bytes", text("AAAA")),
        _case("not-base64", text("CANARY*"), malformed),
        _case("base64url", text("A-_A"), malformed),
        _case("base64-unpadded", text("AA"), malformed),
        _case("base64-not-canonical", text("AB=="), malformed),
        _case("base64-with-a-line-break", text("AAAA\nAAAA"), malformed),
    ]  # fmt: skip


def joining() -> list[Case]:
    """Keys that did not agree to join, or cannot."""

    def joined(name: str, change: Callable[[World, Members, ref.Signer], Members],
               answer: tuple[int, str] = INVALID) -> Case:  # fmt: skip
        def build(w: World) -> bytes:
            account, recipient = w.sealed, somebody()
            members = account.grant(recipient, "reader", keys=[account.namespace()])
            body = w.joining(account, members, recipient)
            return w.change(
                "/v1/grants", body | change(w, members, recipient), account.founder
            ).sent()

        return _case(f"join-{name}", build, answer)

    def said(w: World, key: ref.Signer, signer: ref.Signer | None = None, kind: str = "join",
             **changes: Any) -> Members:  # fmt: skip
        members = {"v": 1, "account": w.sealed.text, "issuer": w.sealed.founder.hex,
                   "recipient": key.hex, "relayer": w.relayer.hex}  # fmt: skip
        return {"join": w.object(kind, members | changes, signer or key)}

    def taken(w: World) -> bytes:
        """A key that belongs to another account, and even agrees."""
        account, key = w.sealed, w.foreign.founder
        members = account.grant(key, "reader", keys=[account.namespace()])
        return w.change("/v1/grants", w.joining(account, members, key), account.founder).sent()

    def by(signer: Callable[[World], ref.Signer]) -> Builder:
        """The founder's good grant, sent by somebody else."""

        def build(w: World) -> bytes:
            account, recipient = w.sealed, somebody()
            members = account.grant(recipient, "reader", keys=[account.namespace()])
            return w.change("/v1/grants", w.joining(account, members, recipient), signer(w)).sent()

        return build

    def custodian(w: World) -> bytes:
        account = w.sealed
        members = account.grant(w.relayer, "custodian")
        members["box"] = account.grant(w.relayer, "custodian", keys=[ref.Root(os.urandom(32))])[
            "box"
        ]
        body = {"grant": w.object("grant", members, account.founder), "join": "AAAA"}
        return w.change("/v1/grants", body, account.founder).sent()

    return [
        joined("nothing", lambda w, m, key: {"join": ""}),
        joined("not-base64", lambda w, m, key: {"join": "*"}, (400, "request.invalid")),
        joined("unsigned", lambda w, m, key: {"join": ref.b64(bytes(80))}),
        joined("signed-by-the-issuer", lambda w, m, key: said(w, key, w.sealed.founder)),
        joined("signed-by-a-stranger", lambda w, m, key: said(w, key, somebody())),
        joined("of-another-key", lambda w, m, key: said(w, somebody())),
        joined("for-another-account", lambda w, m, key: said(w, key, account=w.foreign.text)),
        joined("for-another-issuer", lambda w, m, key: said(w, key, issuer=w.agent.hex)),
        joined("for-any-account-at-another-relayer",
               lambda w, m, key: said(w, key, account=None, issuer=None, relayer="ab" * 32)),
        joined("for-any-account-of-another-key",
               lambda w, m, key: said(w, somebody(), account=None, issuer=None)),
        joined("for-any-relayer", lambda w, m, key: said(w, key, relayer=None)),
        joined("for-another-relayer", lambda w, m, key: said(w, key, relayer="ab" * 32)),
        joined("with-an-unknown-member", lambda w, m, key: said(w, key, more=1)),
        joined("signed-as-a-grant", lambda w, m, key: said(w, key, kind="grant")),
        joined("is-the-grant", lambda w, m, key: {"join": w.joining(w.sealed, m, key)["grant"]}),
        _case("key-of-another-account", taken, (409, "key.taken")),
        _case("sent-by-a-writer", by(lambda w: w.agent), (403, "auth.not_allowed")),
        _case("sent-by-another-account", by(lambda w: w.foreign.founder)),
        _case("custodian-whose-box-has-another-root", custodian),
    ]  # fmt: skip


def taking() -> list[Case]:
    """Revocations and rotations."""

    def revoked(name: str, change: Change, answer: tuple[int, str] = INVALID, kind: str = "revoke",
                signer: Callable[[World], ref.Signer] | None = None) -> Case:  # fmt: skip
        def build(w: World) -> bytes:
            founder = w.sealed.founder
            members = ref.revocation_members(founder.public, w.agent.public, account=w.sealed.id,
                                             serial=w.sealed.serial + 1, created=0)  # fmt: skip
            issuer = signer(w) if signer else founder
            text = w.object(kind, members | change(w), issuer)
            return w.change("/v1/revocations", {"revocation": text}, founder).sent()

        return _case(name, build, answer, REVOCATIONS)

    def rotated(name: str, body: Change, answer: tuple[int, str] = INVALID,
                signer: Callable[[World], ref.Signer] | None = None) -> Case:  # fmt: skip
        def build(w: World) -> bytes:
            return w.change(
                "/v1/rotations", body(w), signer(w) if signer else w.sealed.founder
            ).sent()

        return _case(name, build, answer, ROTATIONS)

    def granted(w: World, *roots: ref.Root) -> Members:
        members = w.sealed.grant(w.sealed.founder, "owner", keys=roots)
        return {"grants": [w.object("grant", members, w.sealed.founder)]}

    same: Change = lambda w: {}  # noqa: E731
    due = (409, "grant.serial")
    return [
        revoked("signed-by-the-revoked", same, signer=lambda w: w.agent),
        revoked("signed-by-a-stranger", same, signer=lambda w: somebody()),
        revoked("signed-as-a-grant", same, kind="grant"),
        revoked("issuer-is-a-writer", lambda w: {"issuer": w.agent.hex}, signer=lambda w: w.agent),
        revoked("of-another-account", lambda w: {"account": w.foreign.text}),
        revoked("recipient-short", lambda w: {"recipient": "ab" * 31}),
        revoked("recipient-of-small-order", lambda w: {"recipient": "00" * 32}),
        revoked("unknown-member", lambda w: {"more": 1}),
        revoked("version-2", lambda w: {"v": 2}),
        revoked("serial-of-before", lambda w: {"serial": w.sealed.serial}, due),
        revoked("serial-skipped", lambda w: {"serial": w.sealed.serial + 2}, due),
        rotated("epoch-skipped", lambda w: granted(w, w.sealed.root, ref.Root(os.urandom(32), 3))),
        rotated("two-roots-of-an-epoch", lambda w: granted(
            w, w.sealed.root, ref.Root(os.urandom(32), 2), ref.Root(os.urandom(32), 2))),
        rotated("keys-left-behind", lambda w: granted(
            w, w.sealed.root, ref.Root(os.urandom(32), 2))),
        rotated("grants-not-base64", lambda w: {"grants": ["*"]}, (400, "request.invalid")),
        rotated("grants-that-are-none", lambda w: {"grants": ["AAAA"]}),
        rotated("revocations-that-are-none", lambda w: {"revocations": ["AAAA"]}),
        rotated("of-a-writer", lambda w: {}, (403, "auth.not_allowed"), lambda w: w.agent),
        rotated("reseal-what-is-not-there", lambda w: {"reseal": ["nobodys"]}, (404, "not_found")),
    ]  # fmt: skip


CASES = [*members(), *signing(), *joining(), *taking()]
