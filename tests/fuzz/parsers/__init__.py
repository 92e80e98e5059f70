"""What is fuzzed: a module for each sort of parser, and their names.

Not here: the loop (`loop.py` of the package above).

- Formats that the relayer and the client both read are read by both, and they have to agree.
"""

from collections.abc import Mapping

from tests.fuzz.loop import Parser
from tests.fuzz.parsers import (
    answers,
    archives,
    bodies,
    chains,
    headers,
    importing,
    sealed,
    texts,
    urls,
)

PARSERS: Mapping[str, Parser] = {
    "headers": headers.PARSER,
    "session": headers.SESSION,
    "json": sealed.JSON,
    "envelope": sealed.ENVELOPE,
    "grant": sealed.GRANT,
    "objects": sealed.OBJECTS,
    "unlock": sealed.UNLOCK,
    "archive": archives.PARSER,
    "records": archives.RECORDS,
    "markdown": importing.MARKDOWN,
    "jsonl": importing.JSONL,
    "exports": importing.EXPORTS,
    "bodies": bodies.PARSER,
    "words": texts.WORDS,
    "conversation": texts.CONVERSATION,
    "webhook-url": urls.PARSER,
    "answers": answers.PARSER,
    "events": answers.STREAM,
    "chains": chains.PARSER,
}
