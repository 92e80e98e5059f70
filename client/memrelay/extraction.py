"""Says in words how the facts of a turn were found.

It does not own what a relayer answers (`models.py`), nor where the words are shown.

- A cause is a relayer's word, like every text of its answers: it is cut, and who shows these words
  to a model escapes them.
"""

from collections.abc import Mapping

from memrelay.models import Analysis, Extraction
from memrelay.plurals import format_count

MODEL, RULES = "model", "rules"
RULES_AFTER = "rules after the model failed: "
PENDING = "pending"
NO_MODEL = "no language model is set"
CAUSE_CHARS_MAX = 60  # a relayer's are of a few words
FINDERS_MAX = 8  # lines on one import: relayers know fewer causes


def summary(found: Analysis) -> str:
    """Return how many facts a text gave, and who found them."""
    known = len(found.reinforced)
    count = format_count(found.fact_count, "fact") + (f" ({known} known already)" if known else "")
    if is_pending(found):
        return f"{count}, pending: {_describe_failure(found.failure)}; they follow once it answers"
    verb = "found" if found.fact_count or known else "looked for"
    by = _by(found.extractor)  # of older relayers, or of a request that was answered before, nobody
    return f"{count}, {found.status}" if by is None else f"{count}, {verb} {by}"


def finders(extractors: Mapping[str, int], causes: Mapping[str, int], noun: str) -> list[str]:
    """Return lines on who found the facts of so many parts, and why others wait for theirs."""
    found = [
        f"facts of {format_count(n, noun)} found {_by(name) or 'by ' + name[:CAUSE_CHARS_MAX]}"
        for name, n in extractors.items()
    ]
    yet = [
        f"facts of {format_count(n, noun)} yet to be found: {_describe_failure(cause)}"
        for cause, n in causes.items()
    ]
    return [*found, *yet][:FINDERS_MAX]


def _by(extractor: str | None) -> str | None:
    """Return who found facts, in words; None of an extractor that is not known."""
    if extractor == MODEL:
        return "by the language model"
    if extractor == RULES:
        return f"by rules: {NO_MODEL}"
    if (cause := cause_of(extractor)) is not None:
        return f"by rules: {_describe_failure(cause)}"
    return None


def is_pending(found: Analysis) -> bool:
    """Return whether nobody has found the facts yet; a repeated request may tell who did since."""
    return found.status == PENDING and found.extractor is None


def degradation(found: Analysis) -> str | None:
    """Return what to say where a language model was to find the facts, and did not."""
    if is_pending(found):
        return f"Its facts are yet to be found: {_describe_failure(found.failure)}."
    if (cause := cause_of(found.extractor)) is not None:
        return f"Rules looked for facts: {_describe_failure(cause)}."
    return None


def source_of_facts(extraction: Extraction) -> str:
    """Return who finds facts at a relayer."""
    if extraction.extractor == RULES:
        return f"facts come from rules: {NO_MODEL}"
    return "facts come from a language model"


def failures(extraction: Extraction) -> str | None:
    """Return how often the language model failed of late, and what waits; None where it did not."""
    if not extraction.failed:
        return None
    turns, waiting = format_count(extraction.failed, "turn"), extraction.waiting
    wait = "1 turn waits for its facts" if waiting == 1 else f"{waiting} turns wait for their facts"
    cause = (extraction.failure or "unknown")[:CAUSE_CHARS_MAX]
    return f"lately the language model failed at {turns} ({cause}); {wait}"


def cause_of(extractor: str | None) -> str | None:
    """Return why the language model failed, if rules took over for it."""
    is_after = extractor is not None and extractor.startswith(RULES_AFTER)
    return extractor.removeprefix(RULES_AFTER) if is_after and extractor else None


def _describe_failure(cause: str | None) -> str:
    if not cause:
        return "the language model is away"
    return f"the language model failed ({cause[:CAUSE_CHARS_MAX]})"
