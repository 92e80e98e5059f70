"""A chat on the terminal that remembers earlier chats: the openai package with a memory.

Needs OPENAI_API_KEY; OPENAI_BASE_URL names another server with the same API, OPENAI_MODEL a model.
"""

import os
import sys
from typing import Any

from openai import OpenAI

from memrelay.gateway import GatewaySettings
from memrelay.openai import with_memory

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")


def main() -> None:
    messages: list[Any] = [{"role": "system", "content": "You are a helpful assistant."}]
    patient = GatewaySettings(recall_deadline_s=5)  # by default, a turn waits one second at most
    # At the end of `with`, what was said last is delivered.
    with with_memory(OpenAI(), settings=patient) as client:
        for line in sys.stdin:
            messages.append({"role": "user", "content": line.strip()})
            # Memories that fit the line go to the model with it; `messages` does not change.
            stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            answer = ""
            for chunk in stream:
                text = chunk.choices[0].delta.content if chunk.choices else None
                answer += text or ""
                print(text or "", end="", flush=True)
            print()
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
