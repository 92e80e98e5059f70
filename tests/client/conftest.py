"""Fixtures of the client's tests: the account of the specification's example."""

from dataclasses import dataclass

import pytest

from memrelay.keys import Identity, NamespaceKey, Root, account_id_of


@dataclass(frozen=True)
class Example:
    founder: Identity
    agent: Identity
    relayer: Identity
    root: Root

    @property
    def account(self) -> bytes:
        return account_id_of(self.founder.public_key)

    @property
    def team(self) -> NamespaceKey:
        return self.root.namespace_key(self.account, "team")


@pytest.fixture
def example() -> Example:
    return Example(
        founder=Identity(bytes(range(32))),
        agent=Identity(bytes(range(64, 96))),
        relayer=Identity(bytes(range(96, 128))),
        root=Root(bytes(range(32, 64)), 1),
    )
