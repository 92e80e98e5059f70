"""Two agents, each with a key of its own, and one namespace that they share.

The owner's key, which `memrelay init` made, gives each agent the keys of its namespaces. What the
other agent keeps for itself, an agent cannot decrypt: it never gets the key to it.
"""

import asyncio

from memrelay import MemoryClient, MemrelayError


async def join(owner: MemoryClient, name: str) -> MemoryClient:
    """Return a client for a new agent. Its private key would now be kept in a file of its own."""
    key = await owner.add_key(namespaces=[name, "team"], label=name)
    return MemoryClient(
        url=owner.settings.url,
        account_id=key.account_id,
        private_key=key.private_key,
        relayer_key=key.relayer_key,
        namespace=name,
    )


async def main() -> None:
    async with MemoryClient.from_profile() as owner:
        async with (
            await join(owner, "researcher") as researcher,
            await join(owner, "coder") as coder,
        ):
            await researcher.remember("The survey has 214 answers, 9 of them are unusable.")
            await researcher.remember("The report is due on Friday.", namespace="team")

            shared = await coder.recall("When is the report due?", namespace="team")
            print("The coder knows:", shared.results[0].text)
            try:
                await coder.recall("How many answers has the survey?", namespace="researcher")
            except MemrelayError as error:
                print("The coder may not:", error)

        for agent in (researcher, coder):  # this example is over
            await owner.revoke_key(agent.settings.identity.public_key.hex())


if __name__ == "__main__":
    asyncio.run(main())
