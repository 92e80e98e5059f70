"""The memory's tools in a real agent of Pydantic AI.

`make test-frameworks` runs this file with the real package.
"""

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memrelay.cli import main
from memrelay.gateway import Context, Gateway, Roster
from memrelay.pydantic_ai import memory_toolset

TEA = "Anna prefers green tea over coffee in the morning."


@pytest.fixture(scope="module")
def profile(shared_relayer, tmp_path_factory):
    path = tmp_path_factory.mktemp("pydantic") / "profile.json"
    assert main(["init", shared_relayer.url, "--profile", str(path)], {}) == 0
    return path


@pytest.fixture
async def gateway(profile):
    async with Gateway(Roster.load(profile, environ={})) as gateway:
        yield gateway


class Model:
    """A model that calls tools one after the other, and keeps what it was told."""

    def __init__(self, *calls: ToolCallPart) -> None:
        self._calls = list(calls)
        self.returns: list[str] = []
        self.info: AgentInfo | None = None

    def __call__(self, messages, info: AgentInfo) -> ModelResponse:
        self.info = info
        self.returns += [
            str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)
        ]
        part = self._calls.pop(0) if self._calls else TextPart("Done.")
        return ModelResponse(parts=[part])


async def ran(gateway, *calls, **options):
    model = Model(*(ToolCallPart(name, arguments) for name, arguments in calls))
    agent = Agent(FunctionModel(model), toolsets=[memory_toolset(gateway, **options)])
    result = await agent.run("What does Anna drink?")
    assert result.output == "Done."
    return model


async def test_an_agent_stores_and_finds(gateway):
    stored = await ran(gateway, ("memory_store", {"text": TEA}))
    assert stored.returns[0].startswith("Stored")
    found = await ran(gateway, ("memory_search", {"query": "What does Anna drink?"}))
    assert TEA in found.returns[0]


async def test_the_model_is_told_when_to_use_which(gateway):
    model = await ran(gateway)
    assert {tool.name for tool in model.info.function_tools} == {
        "memory_search",
        "memory_get",
        "memory_store",
        "memory_forget",
    }
    schema = next(t for t in model.info.function_tools if t.name == "memory_search")
    assert schema.parameters_json_schema["required"] == ["query"]
    assert "memory_search" in model.info.instructions
    assert "memory_store" in model.info.instructions


async def test_read_only_tools_only_read(gateway):
    model = await ran(gateway, read_only=True)
    assert {tool.name for tool in model.info.function_tools} == {"memory_search", "memory_get"}
    assert "memory_store" not in model.info.instructions


async def test_what_goes_wrong_is_told_and_the_run_goes_on(gateway):
    model = await ran(gateway, ("memory_search", {}), ("memory_get", {"id": "none"}))
    assert model.returns[0].startswith("query is a text")
    assert model.returns[1].startswith("id is that of a memory")


async def test_an_agent_of_a_context_has_its_own_memory(gateway):
    await ran(gateway, ("memory_store", {"text": "The heron nests in Zanzibar."}))
    other = Context(agent_id="stranger")
    model = await ran(gateway, ("memory_search", {"query": "heron"}), context=other)
    assert "Zanzibar" not in model.returns[0]
