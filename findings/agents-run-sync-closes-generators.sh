#!/usr/bin/env bash
# The synchronous runner of openai-agents closes the asynchronous generators of a loop that goes on.
#
# Version: openai-agents 0.24.0. Seen on CPython 3.11.
# Behaviour: `Runner.run_sync` runs on the thread's default event loop and keeps that loop for the
# next call. After each run it closes every asynchronous generator that began there, also those of
# other code. Event loops do that when they end (`asyncio.run`); here the loop lives on and runs
# again. Whatever stays open in such a generator, as a pool or a cache does, ends after the first run.
# Output seen:
#   same loop for both runs: True
#   generator of other code after the first run: closed
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openai-agents==0.24.0
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
from collections.abc import AsyncGenerator

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

loops, ended = [], []


async def resource() -> AsyncGenerator[int, None]:
    """What some other library keeps open on the loop."""
    try:
        while True:
            yield 1
    finally:
        ended.append(True)


kept = resource()


class Answering(Model):
    """A model that answers at once, and begins the generator in its first call."""

    async def get_response(self, *args, **kwargs):
        loops.append(asyncio.get_running_loop())
        if len(loops) == 1:
            await anext(kept)
        text = ResponseOutputText(text="Noted.", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


agent = Agent(name="helper", model=Answering())
quiet = RunConfig(tracing_disabled=True)
Runner.run_sync(agent, "I prefer tea.", run_config=quiet)
after_first = list(ended)
Runner.run_sync(agent, "And coffee?", run_config=quiet)
print("same loop for both runs:", loops[0] is loops[1])
print("generator of other code after the first run:", "closed" if after_first else "open")
assert loops[0] is loops[1]
assert after_first
PYTHON
