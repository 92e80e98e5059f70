"""The commands of `relayer`, by concern; `options.py` has what they share."""
