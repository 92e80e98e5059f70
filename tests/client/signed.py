"""Grants as an account's keys sign them."""

from memrelay.sealed.grants import issue_grant
from memrelay.sealed.ledger import Ledger, issue_revocation

NOW_MS = 1_700_000_000_000


def grant(example, serial, issuer, recipient, role="owner", **options):
    keys = options.pop("keys", None)
    return issue_grant(
        issuer,
        account=example.account,
        serial=serial,
        recipient=recipient.public_key,
        role=role,
        keys=keys or [example.root],
        created_ms=options.pop("created_ms", NOW_MS),
        **options,
    )


def revoke(example, serial, issuer, recipient):
    return issue_revocation(
        issuer,
        account=example.account,
        serial=serial,
        recipient=recipient.public_key,
        created_ms=NOW_MS,
    )


def ledger(example, *objects):
    kinds = ["revoke" if b'"role"' not in data else "grant" for data in objects]
    return Ledger.of(example.account, zip(kinds, objects, strict=True))
