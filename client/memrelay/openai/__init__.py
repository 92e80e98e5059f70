"""The openai package with a memory: recall before a call of the model, capture after it.

Chat completions and the Responses API, whole or streamed, with asyncio or without. It does not own
what is recalled or kept, or what happens while the relayer is away (`gateway/`).

- The client and the messages that the caller gave stay as they are.
- In chat completions, memories join the user's message. In a system message, a poisoned memory
  would speak with the developer's authority, and a text that differs each turn would spoil the
  provider's prompt cache.
- In the Responses API, memories follow the caller's `instructions`. The input stays as it was
  given: a response that goes on from an earlier one would otherwise collect the memories of all.
- Only a complete answer is captured: none that was refused, broken off, or that calls tools.
- What goes wrong here, or goes around the memory, is a line in the log; the call goes on.
"""

from memrelay.openai.attachment import with_memory
from memrelay.openai.sessions import memory_session, without_memory

__all__ = ["memory_session", "with_memory", "without_memory"]
