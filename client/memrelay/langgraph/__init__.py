"""A LangGraph store on the memory; needs the extra `memrelay[langgraph]`.

It does not own the memory itself.
"""

from memrelay.langgraph.store import MemoryStore

__all__ = ["MemoryStore"]
