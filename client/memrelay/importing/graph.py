"""The knowledge graph of the Model Context Protocol's memory server, a line each.

It does not own reading lines (`records.py`).

- An entity has a `name`, an `entityType` and `observations`: each is a memory, with the name in
  front of it unless it says the name itself.
- A relation leads `from` one entity `to` another: a memory, with both in it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from memrelay.importing.drafts import Fault, ImportItem, check_draft, source_of, tags_of
from memrelay.models import Draft


def memories(value: Any, place: str, file: str) -> Iterator[ImportItem]:
    """Yield the memories of one line, or of the object that the server answers with."""
    if isinstance(value, Mapping) and isinstance(value.get("entities"), list):
        relations = value.get("relations")
        for one in [*value["entities"], *(relations if isinstance(relations, list) else [])]:
            yield from memories(one, place, file)
    elif isinstance(value, Mapping) and isinstance(value.get("name"), str):
        yield from _entity(value, value["name"], place, file)
    elif isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("from", "to", "relationType")
    ):
        relation = value["relationType"].replace("_", " ")
        text = f"{value['from']} {relation} {value['to']}"
        tags = tags_of([value["from"], value["to"]])
        yield check_draft(place, Draft(text=text, tags=tags, source=source_of(file, value["from"])))
    else:
        yield Fault(place, "neither an entity nor a relation")


def _entity(value: Mapping[str, Any], name: str, place: str, file: str) -> Iterator[ImportItem]:
    kind, observations = value.get("entityType"), value.get("observations")
    listed = observations if isinstance(observations, list) else []
    texts = [text for text in listed if isinstance(text, str)]
    if not texts and isinstance(kind, str) and kind.strip():
        texts = [kind]  # all that is known of it
    for text in texts:
        told = text if name.casefold() in text.casefold() else f"{name}: {text}"
        tags = tags_of([name, *([kind] if isinstance(kind, str) else [])])
        yield check_draft(place, Draft(text=told, tags=tags, source=source_of(file, name)))
