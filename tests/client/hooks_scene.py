"""What a turn of a gateway asks, what there is to recall, and what the turn is given."""

from memrelay import MemoryClient, Settings
from memrelay.gateway import Gateway, GatewaySettings, Roster
from tests.client.gateway_scene import CTX, PATIENT

ASKED = {"prompt": "Do I prefer green tea or coffee in the morning?", "messages": []}
FAILED = "could not be reached"


async def remember(settings: Settings, *texts: str, namespace: str | None = None) -> None:
    async with MemoryClient.from_settings(settings) as client:
        stored = await client.remember_many(texts, namespace=namespace)
        await client.wait([memory.id for memory in stored])


async def asked(settings: Settings, gateway_settings: GatewaySettings = PATIENT) -> dict[str, str]:
    """What a turn of a gateway of its own is given."""
    async with Gateway(Roster.single(settings), gateway_settings) as gateway:
        return await gateway.before_prompt_build(ASKED, CTX)
