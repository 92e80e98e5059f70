"""Who takes part, and their objects with a bit or an end changed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from relayer.sealed import envelope
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    Root,
)
from relayer.sealed.primitives import (
    CryptoError,
)
from tests import scenarios as sc

# Derandomised: the same examples on every machine, and none kept on disk.
few = settings(max_examples=40, deadline=None, derandomize=True, database=None)
ACCOUNT = AccountId(sc.ACCOUNT)
TEAM = NamespaceKey(Namespace("team"), 1, sc.TEAM.key)
ROOT = Root(1, sc.ROOT.key)
FOUNDER, AGENT, SECOND, STRANGER, RELAYER = (
    Identity(signer.seed) for signer in (sc.FOUNDER, sc.AGENT, sc.SECOND, sc.STRANGER, sc.RELAYER)
)
ADDRESS = envelope.Address(envelope.MEMORY, ACCOUNT, sc.MEMORY, 7)
RECORD = sc.TEXT.encode()


def flips(data: bytes) -> Iterator[bytes]:
    """The data with one bit changed, once in every byte."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def cuts(data: bytes) -> Iterator[bytes]:
    """Every proper beginning of the data."""
    for size in range(len(data)):
        yield data[:size]


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The message with which a call is refused."""
    with pytest.raises(CryptoError) as caught:
        call(*arguments, **named)
    return str(caught.value)
