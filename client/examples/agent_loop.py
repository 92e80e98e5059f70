"""An agent loop of one's own around the gateway's hooks: recall, memory tools, capture.

Needs OPENAI_API_KEY; OPENAI_BASE_URL names another server with the same API, OPENAI_MODEL a model.
"""

import asyncio
import json
import os
import sys
from typing import Any

from openai import AsyncOpenAI

from memrelay.gateway import Context, Gateway, GatewaySettings, Roster

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
STEPS_MAX = 8  # a model may call tools without end
# Which agent speaks in which session; an agent without a profile of its own gets a namespace.
CTX = {"agentId": "main", "sessionId": "example", "sessionKey": "agent:main:example"}


async def answer(gateway: Gateway, model: AsyncOpenAI, messages: list[Any]) -> str:
    """Return the model's answer, after as many calls of the memory tools as it wants."""
    described = [
        {"name": t.name, "description": t.description, "parameters": t.parameters}
        for t in gateway.tools
    ]
    tools: Any = [{"type": "function", "function": function} for function in described]
    for _ in range(STEPS_MAX):
        reply = await model.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        message: Any = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            try:
                arguments = dict(json.loads(call.function.arguments))
            except (TypeError, ValueError):
                arguments = {}  # models write such; what the tool then lacks, its answer says
            result = await gateway.call_tool(call.function.name, arguments, Context.from_json(CTX))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
    return "I called tools again and again, and stopped."


async def main() -> None:
    patient = GatewaySettings(recall_deadline_s=5)  # by default, a turn waits one second at most
    async with Gateway(Roster.load(), patient) as gateway, AsyncOpenAI() as model:
        for prompt in map(str.strip, sys.stdin):
            added = await gateway.before_prompt_build({"prompt": prompt}, CTX)
            system = "You are a helpful assistant.\n\n" + added.get("appendSystemContext", "")
            user = "\n\n".join([*filter(None, [added.get("prependContext")]), prompt])
            messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            text = await answer(gateway, model, messages)
            print(text)
            turn = [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
            await gateway.agent_end({"messages": turn, "success": True}, CTX)


if __name__ == "__main__":
    asyncio.run(main())
