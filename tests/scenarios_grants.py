"""What the vectors of grants and their chains are about (SPEC §4.1, §4.2).

It does not own files (`generate_vectors.py`) or formulas (`reference.py`).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests import reference as ref
from tests.scenarios import (
    ACCOUNT,
    AGENT,
    FIFTH,
    FOUNDER,
    FOURTH,
    MIXED_ORDER,
    NOTES,
    NOW,
    OTHER_ACCOUNT,
    RELAYER,
    ROOT,
    SECOND,
    STRANGER,
    TEAM,
    THIRD,
    Json,
    Scenario,
)

ROOT_2 = ref.Root(ref.drawn("root of epoch 2"), 2)
EPHEMERAL = ref.drawn("ephemeral key")


def grant(
    recipient: ref.Signer,
    role: str,
    *,
    issuer: ref.Signer = FOUNDER,
    keys: Sequence[ref.Root | ref.NamespaceKey] = (ROOT,),
    serial: int = 2,
    created: int = NOW,
    expires: int | None = None,
    account: bytes = ACCOUNT,
) -> Json:
    """The members of a grant of the example account."""
    return ref.grant_members(
        issuer.public,
        recipient,
        keys,
        account=account,
        serial=serial,
        role=role,
        created=created,
        expires=expires,
        ephemeral=EPHEMERAL,
    )


def _grant(
    name: str,
    expect: str = "ok",
    *,
    members: Json | None = None,
    payload: bytes | None = None,
    signer: ref.Signer = FOUNDER,
    recipient: ref.Signer = AGENT,
    keys: Sequence[ref.Root | ref.NamespaceKey] = (TEAM,),
    change: Callable[[bytes], bytes] = bytes,
) -> Scenario:
    members = members or grant(AGENT, "writer", keys=keys)
    signed = change(signer.signed("grant", payload or ref.compact(members)))
    given = {"grant": ref.b64(signed), "recipient_seed": recipient.seed.hex()}
    output: Json = {"members": {k: v for k, v in members.items() if k != "v"}}
    output["keys"] = [k.key.hex() for k in keys]
    made_with = {
        "seed": signer.seed.hex(),
        "ephemeral": EPHEMERAL.hex(),
        "boxed": ref.boxed_keys(members, keys).decode() if expect == "ok" else "",
    }
    return Scenario(f"grant-{name}", "grant", "§4.1", given, expect, output, made_with)


def grants() -> Iterator[Scenario]:
    base = grant(AGENT, "writer", keys=[TEAM])
    owner = grant(FOUNDER, "owner", serial=1)
    yield _grant("namespace")
    yield _grant("two-namespaces", keys=[TEAM, NOTES])
    yield _grant("name-of-before", keys=[ROOT.namespace(ACCOUNT, "te\u200bam")])
    yield _grant("root", members=owner, recipient=FOUNDER, keys=[ROOT])
    roots = grant(AGENT, "owner", keys=[ROOT, ROOT_2])
    yield _grant("two-epochs", members=roots, keys=[ROOT, ROOT_2])
    custodian = grant(RELAYER, "custodian")
    yield _grant("custodian", members=custodian, recipient=RELAYER, keys=[ROOT])
    expiring = grant(AGENT, "reader", keys=[TEAM], expires=NOW + 1000)
    yield _grant("expiring", members=expiring)

    yield _grant("signed-by-another", "signature", signer=STRANGER)
    yield _grant("unsigned", "signature", change=lambda g: g[:-64] + bytes(64))
    yield _grant("altered", "signature", change=lambda g: g.replace(b"writer", b"reader"))
    yield _grant("for-another-recipient", "recipient", recipient=STRANGER)
    yield from _broken_boxes(base)
    yield from _broken_members(base)


def _broken_boxes(base: Json) -> Iterator[Scenario]:
    def boxed(**inside: Any) -> Json:
        content = {**json.loads(ref.boxed_keys(base, [TEAM])), **inside}
        return _reboxed(ref.compact(content))

    def _reboxed(content: bytes, recipient: ref.Signer = AGENT) -> Json:
        box = ref.sealed_box(content, recipient.exchange_public, EPHEMERAL)
        return {**base, "box": ref.b64(box)}

    elsewhere = grant(AGENT, "reader", keys=[TEAM], serial=3)
    yield _grant("box-of-another-grant", "box", members={**base, "box": elsewhere["box"]})
    other = ref.account_text(OTHER_ACCOUNT)
    yield _grant("box-of-another-account", "box", members=boxed(account=other))
    yield _grant("box-of-another-issuer", "box", members=boxed(issuer=STRANGER.hex))
    yield _grant("box-of-another-recipient", "box", members=boxed(recipient=STRANGER.hex))
    yield _grant("box-of-a-lower-serial", "box", members=boxed(serial=1))
    yield _grant("box-without-keys", "keys", members=boxed(keys=[]))
    yield _grant("box-with-keys-as-text", "keys", members=boxed(keys="none"))
    yield _grant("box-with-a-key-too-many", "keys", members=boxed(keys=[ref.b64(TEAM.key)] * 2))
    yield _grant("box-with-another-key", "key_id", members=boxed(keys=[ref.b64(NOTES.key)]))
    yield _grant("box-with-the-root", "key_id", members=boxed(keys=[ref.b64(ROOT.key)]))
    owner = grant(AGENT, "owner")
    swapped = {**json.loads(ref.boxed_keys(owner, [ROOT])), "keys": [ref.b64(ROOT_2.key)]}
    box = ref.sealed_box(ref.compact(swapped), AGENT.exchange_public, EPHEMERAL)
    yield _grant("box-with-another-root", "key_id", members={**owner, "box": ref.b64(box)})
    short = {"keys": [ref.b64(TEAM.key[1:])]}
    yield _grant("box-with-a-short-key", "key_length", members=boxed(**short))
    loose = {"keys": [ref.b64(TEAM.key).rstrip("=")]}
    yield _grant("box-with-unpadded-base64", "base64", members=boxed(**loose))
    yield _grant("box-with-another-member", "box_form", members=boxed(more=1))
    yield _grant("box-not-json", "box_form", members=_reboxed(b"keys"))
    content = ref.boxed_keys(base, [TEAM])
    sealed_elsewhere = _reboxed(content, STRANGER)
    yield _grant("box-to-another-key", "box_closed", members=sealed_elsewhere)
    tiny = {**base, "box": ref.b64(bytes(48))}
    yield _grant("box-too-short", "box_length", members=tiny)
    not_base64 = {**base, "box": base["box"][:-4] + "===="}
    yield _grant("box-not-base64", "base64", members=not_base64)


def _broken_members(base: Json) -> Iterator[Scenario]:
    """Grants with one member that breaks a rule, each signed well by its issuer."""
    team, notes, root = TEAM.scope(), NOTES.scope(), ROOT.scope()
    changes: dict[str, tuple[str, Json]] = {
        "scope-widened": ("keys", {"scope": [team, notes]}),
        "scope-empty": ("scope", {"scope": []}),
        "scope-not-a-list": ("scope", {"scope": team}),
        "scope-257": ("scope", {"scope": [{**team, "epoch": n + 1} for n in range(257)]}),
        "scope-twice": ("scope", {"scope": [team, team]}),
        "scope-twice-two-ids": ("scope", {"scope": [team, {**team, "key_id": notes["key_id"]}]}),
        "scope-mixed": ("scope", {"scope": [team, root]}),
        "scope-entry-text": ("scope", {"scope": ["team"]}),
        "scope-entry-unknown-member": ("scope", {"scope": [{**team, "more": 1}]}),
        "scope-name-not-normal": ("namespace", {"scope": [{**team, "ns": " team"}]}),
        "scope-name-decomposed": ("namespace", {"scope": [{**team, "ns": "Ku\u0308che"}]}),
        "scope-name-refused": ("namespace", {"scope": [{**team, "ns": "te\nam"}]}),
        "scope-name-number": ("text", {"scope": [{**team, "ns": 1}]}),
        "scope-epoch-0": ("epoch", {"scope": [{**team, "epoch": 0}]}),
        "scope-epoch-too-great": ("epoch", {"scope": [{**team, "epoch": 2**32}]}),
        "scope-epoch-true": ("epoch", {"scope": [{**team, "epoch": True}]}),
        "scope-key-id-upper-case": ("hex", {"scope": [{**team, "key_id": team["key_id"].upper()}]}),
        "role-unknown": ("role", {"role": "admin"}),
        "role-number": ("text", {"role": 1}),
        "owner-of-a-namespace": ("role_scope", {"role": "owner"}),
        "custodian-of-a-namespace": ("role_scope", {"role": "custodian"}),
        "serial-0": ("integer", {"serial": 0}),
        "serial-true": ("integer", {"serial": True}),
        "serial-text": ("integer", {"serial": "2"}),
        "created-negative": ("integer", {"created": -1}),
        "expires-text": ("integer", {"expires": "never"}),
        "account-upper-case": ("account", {"account": base["account"].upper()}),
        "account-number": ("text", {"account": 1}),
        "grant-id-upper-case": ("uuid", {"grant": base["grant"].upper()}),
        "grant-id-without-hyphens": ("uuid", {"grant": base["grant"].replace("-", "")}),
        "grant-id-not-one": ("uuid", {"grant": "team"}),
        "grant-id-number": ("text", {"grant": 1}),
        "recipient-mixed-order": ("public_key", {"recipient": MIXED_ORDER.hex()}),
        "recipient-order-4": ("public_key", {"recipient": bytes(32).hex()}),
        "box-number": ("text", {"box": 1}),
        "version-2": ("version", {"v": 2}),
        "member-unknown": ("members", {"more": 1}),
    }
    for name, (expect, change) in changes.items():
        yield _grant(name, expect, members={**base, **change})
    text = ref.compact(base)
    yield _grant("duplicate-member", "json", payload=text[:-1] + b',"role":"owner"}')
    yield _grant("serial-float", "json", payload=text.replace(b'"serial":2', b'"serial":2.0'))
    yield _grant("issuer-missing", "members", payload=text.replace(b'"issuer"', b'"signer"'))
    issuer = {**base, "issuer": FOUNDER.hex.upper()}
    yield _grant("issuer-upper-case", "hex", members=issuer)


def signed_grant(issuer: ref.Signer, recipient: ref.Signer, role: str, **how: Any) -> bytes:
    """A signed grant of the example account."""
    return issuer.signed("grant", ref.compact(grant(recipient, role, issuer=issuer, **how)))


def signed_revocation(
    issuer: ref.Signer, recipient: ref.Signer, serial: int, created: int = NOW
) -> bytes:
    """A signed revocation of the example account."""
    members = ref.revocation_members(
        issuer.public, recipient.public, account=ACCOUNT, serial=serial, created=created
    )
    return issuer.signed("revoke", ref.compact(members))


def _chain(
    name: str,
    objects: Sequence[bytes],
    expect: str = "ok",
    *,
    succession: Sequence[bytes] = (),
    **live: list[int],
) -> Scenario:
    """An account's history; `live` names the serials that count at the end for some keys."""
    people = {"founder": FOUNDER, "agent": AGENT, "relayer": RELAYER, "second": SECOND}
    people |= {"third": THIRD, "fourth": FOURTH, "fifth": FIFTH}
    given = {"account": ref.account_text(ACCOUNT), "now": NOW + 5000}
    given["objects"] = [ref.b64(o) for o in objects]
    given["succession"] = [ref.b64(o) for o in succession]
    given["about"] = [people[k].hex for k in live]
    output = {"serial": len(objects), "live": {people[k].hex: v for k, v in live.items()}}
    return Scenario(f"chain-{name}", "chain", "§4.1", given, expect, output)


def _alive(
    name: str, objects: Sequence[bytes], oldest: int, *, about: ref.Signer = FOUNDER
) -> Scenario:
    """The oldest epoch that is alive for a key after these grants."""
    given = {"account": ref.account_text(ACCOUNT), "now": NOW + 5000, "about": about.hex}
    given["objects"] = [ref.b64(o) for o in objects]
    return Scenario(f"epochs-{name}", "epochs", "§4.1", given, "ok", {"oldest": oldest})


def chains() -> Iterator[Scenario]:
    g, r = signed_grant, signed_revocation
    first = g(FOUNDER, FOUNDER, "owner", serial=1)
    second = g(FOUNDER, SECOND, "owner", serial=2)
    third = g(SECOND, THIRD, "owner", serial=3)
    fourth = g(THIRD, FOURTH, "owner", serial=4)
    custodian = g(FOUNDER, RELAYER, "custodian", serial=2)
    writer = g(FOUNDER, AGENT, "writer", keys=[TEAM], serial=2)

    yield _chain(
        "of-3",
        [first, second, g(SECOND, AGENT, "writer", keys=[TEAM], serial=3)],
        founder=[1],
        second=[2],
        agent=[3],
    )
    yield _chain(
        "of-4-grants",
        [first, second, third, fourth, g(THIRD, FIFTH, "reader", serial=5)],
        fourth=[4],
        fifth=[5],
    )
    yield _chain(
        "deepest", [first, second, third, fourth, g(FOURTH, FIFTH, "reader", serial=5)], fifth=[5]
    )
    five = [first, second, third, fourth, g(FOURTH, FIFTH, "owner", serial=5)]
    yield _chain("too-deep", [*five, g(FIFTH, AGENT, "reader", serial=6)], "chain")
    nearer = [*five, g(FOUNDER, FIFTH, "owner", serial=6)]
    yield _chain(
        "shortest-counts", [*nearer, g(FIFTH, AGENT, "reader", serial=7)], fifth=[5, 6], agent=[7]
    )
    yield _chain(
        "managed",
        [first, custodian, g(RELAYER, AGENT, "writer", keys=[TEAM], serial=3)],
        relayer=[2],
        agent=[3],
    )
    yield _chain(
        "custodian-makes-an-owner",
        [first, custodian, g(RELAYER, AGENT, "owner", serial=3)],
        agent=[3],
    )
    both = [first, second, g(SECOND, RELAYER, "custodian", serial=3)]
    yield _chain("owner-appoints-a-custodian", both, relayer=[3])
    yield _chain("revoked", [first, writer, r(FOUNDER, AGENT, 3)], agent=[], founder=[1])
    again = [
        first,
        writer,
        r(FOUNDER, AGENT, 3),
        g(FOUNDER, AGENT, "reader", keys=[NOTES], serial=4),
    ]
    yield _chain("granted-again", again, agent=[4])
    yield _chain(
        "what-a-revoked-owner-gave-stays",
        [first, second, g(SECOND, AGENT, "reader", serial=3), r(FOUNDER, SECOND, 4)],
        second=[],
        agent=[3],
    )
    former = [
        first,
        custodian,
        g(FOUNDER, AGENT, "owner", serial=3),
        r(FOUNDER, AGENT, 4),
        g(FOUNDER, AGENT, "reader", serial=5),
    ]
    yield _chain("custodian-revokes-a-former-owner", [*former, r(RELAYER, AGENT, 6)], agent=[])
    yield _chain(
        "custodian-revokes-a-writer",
        [first, custodian, g(RELAYER, AGENT, "writer", serial=3), r(RELAYER, AGENT, 4)],
        agent=[],
    )
    yield _chain(
        "expired", [first, g(FOUNDER, AGENT, "reader", serial=2, expires=NOW + 5000)], agent=[]
    )
    yield _chain(
        "not-yet-expired",
        [first, g(FOUNDER, AGENT, "reader", serial=2, expires=NOW + 5001)],
        agent=[2],
    )
    owns_until = g(FOUNDER, SECOND, "owner", serial=2, expires=NOW + 100)
    yield _chain(
        "issued-before-expiry",
        [first, owns_until, g(SECOND, AGENT, "reader", serial=3, created=NOW + 99)],
        second=[],
        agent=[3],
    )

    yield _chain(
        "issuer-expired",
        [first, owns_until, g(SECOND, AGENT, "reader", serial=3, created=NOW + 100)],
        "issuer",
    )
    yield _chain(
        "issuer-revoked",
        [first, second, r(FOUNDER, SECOND, 3), g(SECOND, AGENT, "reader", serial=4)],
        "issuer",
    )
    yield _chain("issuer-unknown", [first, g(STRANGER, AGENT, "reader", serial=2)], "issuer")
    yield _chain(
        "issuer-writer",
        [first, writer, g(AGENT, SECOND, "reader", keys=[TEAM], serial=3)],
        "issuer",
    )
    yield _chain(
        "issuer-reader-of-all",
        [first, g(FOUNDER, AGENT, "reader", serial=2), g(AGENT, SECOND, "reader", serial=3)],
        "issuer",
    )
    yield _chain("widens-own-grant", [first, writer, g(AGENT, AGENT, "owner", serial=3)], "issuer")
    yield _chain("founded-by-another", [g(STRANGER, STRANGER, "owner", serial=1)], "founder")
    yield _chain(
        "custodian-by-a-custodian",
        [first, custodian, g(RELAYER, STRANGER, "custodian", serial=3)],
        "custodian",
    )
    yield from _handovers([first, custodian])
    yield _chain(
        "another-account",
        [first, g(FOUNDER, AGENT, "reader", serial=2, account=OTHER_ACCOUNT)],
        "account",
    )
    yield _chain(
        "serial-repeated", [first, writer, g(FOUNDER, SECOND, "reader", serial=2)], "serial"
    )
    yield _chain("serial-lower", [first, writer, g(FOUNDER, SECOND, "reader", serial=1)], "serial")
    yield _chain("revocation-by-a-writer", [first, writer, r(AGENT, FOUNDER, 3)], "issuer")
    yield _chain("revocation-by-a-stranger", [first, writer, r(STRANGER, AGENT, 3)], "issuer")
    yield _chain(
        "custodian-revokes-an-owner",
        [first, custodian, g(FOUNDER, AGENT, "owner", serial=3), r(RELAYER, AGENT, 4)],
        "owner_kept",
    )
    yield _chain(
        "custodian-revokes-the-founder", [first, custodian, r(RELAYER, FOUNDER, 3)], "owner_kept"
    )


def _handovers(managed: list[bytes]) -> Iterator[Scenario]:
    """Custody passed on by a relayer to its next key."""
    g, r = signed_grant, signed_revocation
    to_second = ref.named_next(RELAYER, SECOND, created=NOW)
    to_third = ref.named_next(SECOND, THIRD, created=NOW)
    handed = [*managed, g(RELAYER, SECOND, "custodian", serial=3)]
    yield _chain("custody-passed-on", handed, succession=[to_second], relayer=[2], second=[3])
    after = [*handed, r(SECOND, RELAYER, 4), g(SECOND, AGENT, "writer", keys=[TEAM], serial=5)]
    yield _chain("successor-acts", after, succession=[to_second], relayer=[], second=[3], agent=[5])
    twice = [*handed, g(SECOND, THIRD, "custodian", serial=4)]
    owner = [*twice, g(THIRD, FOURTH, "owner", serial=5), g(FOURTH, FIFTH, "owner", serial=6)]
    deep = [*owner, g(FIFTH, AGENT, "reader", serial=7)]
    yield _chain(
        "custody-passed-on-keeps-its-depth", deep, succession=[to_second, to_third], agent=[7]
    )
    yield _chain(
        "too-deep-behind-a-successor",
        [*owner, g(FIFTH, STRANGER, "owner", serial=7), g(STRANGER, AGENT, "reader", serial=8)],
        "chain",
        succession=[to_second, to_third],
    )
    yield _chain("custody-to-an-unnamed-key", handed, "custodian", succession=[to_third])
    strangers = ref.named_next(RELAYER, SECOND, created=NOW, signer=STRANGER)
    yield _chain("successor-named-by-another", handed, "signature", succession=[strangers])
    other = ref.named_next(RELAYER, THIRD, created=NOW)
    yield _chain("two-successors", handed, "successor", succession=[to_second, other])
    yield _chain(
        "successor-of-a-writer",
        [managed[0], g(FOUNDER, RELAYER, "writer", serial=2), handed[2]],
        "issuer",
        succession=[to_second],
    )
    yield _chain(
        "custody-passed-on-after-its-end",
        [*managed, r(FOUNDER, RELAYER, 3), g(RELAYER, SECOND, "custodian", serial=4)],
        "issuer",
        succession=[to_second],
    )


def epochs() -> Iterator[Scenario]:
    """Which epochs are alive for a key: those from the lowest that its newest live grant names."""
    g = signed_grant
    first = g(FOUNDER, FOUNDER, "owner", serial=1)
    both = g(FOUNDER, FOUNDER, "owner", keys=[ROOT, ROOT_2], serial=2)
    second = g(FOUNDER, FOUNDER, "owner", keys=[ROOT_2], serial=3)
    team_2 = ROOT_2.namespace(ACCOUNT, "team")
    brief = g(FOUNDER, FOUNDER, "owner", keys=[ROOT_2], serial=3, expires=NOW + 1000)
    yield _alive("one", [first], 1)
    yield _alive("two", [first, both], 1)
    yield _alive("older-retired", [first, both, second], 2)
    alone = g(FOUNDER, FOUNDER, "owner", keys=[ROOT_2], serial=2)
    again = g(FOUNDER, FOUNDER, "owner", keys=[ROOT, ROOT_2], serial=3)
    yield _alive("older-again", [first, alone, again], 1)
    yield _alive("newest-expired", [first, both, brief], 1)
    writer = g(FOUNDER, AGENT, "writer", keys=[TEAM], serial=2)
    newer = g(FOUNDER, AGENT, "writer", keys=[team_2], serial=3)
    yield _alive("of-a-namespace", [first, writer, newer], 2, about=AGENT)
