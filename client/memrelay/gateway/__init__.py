"""The part of an agent gateway that remembers: what happens before and after every turn.

It depends on no gateway. A relayer that is slow, away or wrong never reaches the agent: a hook
answers within its deadline, with nothing if need be.
"""

from memrelay.gateway.blocking import BlockingGateway
from memrelay.gateway.events import Context, Injection, Message
from memrelay.gateway.hooks import Gateway
from memrelay.gateway.roster import Roster
from memrelay.gateway.settings import GatewaySettings

__all__ = [
    "BlockingGateway",
    "Context",
    "Gateway",
    "GatewaySettings",
    "Injection",
    "Message",
    "Roster",
]
