"""The part of an agent gateway that remembers: what happens before and after every turn.

It depends on no gateway. A relayer that is slow, away or wrong never reaches the agent: a hook
answers within its deadline, with nothing if need be.
"""

from typing import TYPE_CHECKING

from memrelay.lazy_imports import import_on_access

if TYPE_CHECKING:
    from memrelay.gateway.blocking import BlockingGateway
    from memrelay.gateway.hooks import Gateway
    from memrelay.gateway.host_events import Context, Injection, Message
    from memrelay.gateway.roster import Roster
    from memrelay.gateway.settings import GatewaySettings
else:  # a command that reads a gateway's settings needs none of the hooks
    __getattr__ = import_on_access(
        __name__,
        {
            "blocking": ("BlockingGateway",),
            "host_events": ("Context", "Injection", "Message"),
            "hooks": ("Gateway",),
            "roster": ("Roster",),
            "settings": ("GatewaySettings",),
        },
    )

__all__ = [
    "BlockingGateway",
    "Context",
    "Gateway",
    "GatewaySettings",
    "Injection",
    "Message",
    "Roster",
]
