"""A turn that was captured: its text, whose it is, and what makes it harmless to send it twice.

It does not own its delivery (`capture.py`) or how it is kept (`spool.py`).

- The idempotency key is a keyed hash of namespace, session and text: the same window, sent five
  times or once more after a crash, is captured once, and the key tells nothing of the text.
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from memrelay.answers import rfc3339
from memrelay.gateway.host_events import encodable
from memrelay.sealed.keys import Identity, mac

if TYPE_CHECKING:  # a hook's process makes turns without the client that a binding has
    from memrelay.gateway.erasures import Erasures
    from memrelay.gateway.roster import Binding

TEXT_BYTES_MAX = 64 * 1024  # of one conversation, as the relayer takes it
SOURCE_CHARS_MAX = 512


@dataclass(frozen=True, kw_only=True)
class CapturedTurn:
    """A turn as it is kept and sent; its time is that of the hook, however late it is sent.

    A `wish` is a text that somebody asked to keep: as long as no fact was found in it, it is kept
    as it is.
    One that is `borrowed` is of an agent with the main profile's key. It waits while other keys
    hold its namespace by name; whether they do is known only when the relayer can be asked. Once
    its agent has a profile of its own here, it is sent with that key.
    The `names` are all that its session has; earlier releases kept the one in its source alone.
    Files of other members are set aside as damaged by a version that does not know them.
    """

    agent: str
    namespace: str
    text: str = field(repr=False)
    source: str
    occurred_at: str
    idempotency_key: str
    wish: bool = False
    borrowed: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        binding: "Binding",
        *,
        text: str,
        session: str,
        source: str,
        occurred_at: datetime,
        names: tuple[str, ...] = (),
    ) -> Self:
        """Return a turn of an agent; a text that is too long keeps its end."""
        return cls.make(
            binding.client.settings.identity,
            agent=binding.agent,
            namespace=binding.namespace,
            text=text,
            session=session,
            source=source,
            occurred_at=occurred_at,
            borrowed=binding.borrows,
            names=names,
        )

    @classmethod
    def make(
        cls,
        identity: Identity,
        *,
        agent: str,
        namespace: str,
        text: str,
        session: str,
        source: str,
        occurred_at: datetime,
        borrowed: bool = False,
        names: tuple[str, ...] = (),
    ) -> Self:
        """Return a turn that a key writes; a text that is too long keeps its end."""
        session = encodable(session)
        text = encodable(text).encode()[-TEXT_BYTES_MAX:].decode(errors="ignore")
        parts = (namespace.encode(), session.encode(), text.encode())
        return cls(
            agent=agent,
            namespace=namespace,
            text=text,
            source=source_of(source, session),
            occurred_at=rfc3339(occurred_at, zoned=True),
            idempotency_key=mac(16, identity.derived("captured turn"), "turn", *parts).hex(),
            borrowed=borrowed,
            names=names,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return a turn that was kept."""
        members = dict(json.loads(data))
        return cls(**members | {"names": tuple(members.get("names", ()))})

    def to_bytes(self) -> bytes:
        """Return the turn as it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    def is_erased_by(self, erasures: "Erasures") -> bool:
        """Return whether its session erased a memory after it; a wish is no part of a session."""
        names = self.names or (self.source.partition(":")[2],)
        said_at = datetime.fromisoformat(self.occurred_at)
        return not self.wish and erasures.covers(self.agent, names, said_at)


def source_of(source: str, session: str) -> str:
    """Return what tells of a memory where it came from: a gateway, and the session there."""
    return f"{source}:{encodable(session)}"[:SOURCE_CHARS_MAX] if session else source
