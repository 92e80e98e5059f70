"""Versioned prompts, one text file each; `relayer.llm` loads them."""
