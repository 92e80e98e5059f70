"""Anthropic's memory tool on the memory; needs the extra `memrelay[anthropic]`.

It does not own the memory itself.
"""

from memrelay.anthropic.memory_tool import AsyncMemoryTool, MemoryTool

__all__ = ["AsyncMemoryTool", "MemoryTool"]
