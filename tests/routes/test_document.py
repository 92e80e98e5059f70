"""What the OpenAPI document has, for whoever generates a client: names, types, nothing unnamed.

Not here: that answers are as it says (`tests/described.py`, `test_openapi.py`).
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.types import ASGIApp

from relayer.http.openapi import document
from tests.described import named_by
from tests.framework import framework

Json = dict[str, Any]

# Clients call operations by these names: one that changes breaks those that were generated.
OPERATIONS = """
    addGrant addRevocation analyze analyzeAsMemwal analyzeEpisode ask askAsMemwal callSui
    changeSettings closeAccount consolidate createAccount editMemory embed exportAccount
    followEvents forget forgetAsMemwal forgetMemory forgetNamespace getAccount getCheckpoint
    getConfig getConsolidation getCounts getDocumentOpenapiJson getDocumentSchema getEpisode
    getHealth getJobAsMemwal getJobsAsMemwal getMemory getMemoryHistory getMemoryStatus getMetrics
    getReadiness getRotation getSettings getStatement getStats getStatsAsMemwal getSuiObjects
    getUsage getVersion importAccount listConsolidations listEpisodes listGrants listInventory
    listKeys listMemories listNamespaces listOwnerNamespaces listReceipts listReview listWebhooks
    putNamespace putWebhook readBlobs recall recallAsMemwal recallManual
    refuseMcpDeleteMcp refuseMcpDeleteMessages refuseMcpDeleteSse
    refuseMcpGetMcp refuseMcpGetMessages refuseMcpGetSse
    refuseMcpPostMcp refuseMcpPostMessages refuseMcpPostSse
    remember rememberAsMemwal rememberBulk rememberBulkAsMemwal rememberManual removeWebhook
    restoreAsMemwal restoreNamespace rotateKeys setMemoryState tryWebhook undoConsolidation
""".split()
TEXTS = {"text/plain", "application/grpc-web-text"}  # answers that have no members


@pytest.fixture
def described(app: ASGIApp) -> Json:
    return document(framework(app).routes)


def operations(described: Json) -> Iterator[Json]:
    for of_path in described["paths"].values():
        yield from of_path.values()


def schemas_in(value: Any) -> Iterator[Json]:
    """Every object of the document that may be a schema."""
    if isinstance(value, list):
        for inner in value:
            yield from schemas_in(inner)
    elif isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from schemas_in(inner)


def test_every_operation_has_a_name_of_its_own(described: Json) -> None:
    names = [operation["operationId"] for operation in operations(described)]
    assert sorted(names) == sorted(OPERATIONS)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", name) for name in names)


def test_every_answer_says_what_is_in_it(described: Json) -> None:
    schemas = described["components"]["schemas"]
    succeeding = [
        (operation["operationId"], media_type, answered["schema"])
        for operation in operations(described)
        for status, response in operation["responses"].items()
        if status.startswith("2")
        for media_type, answered in response["content"].items()
    ]
    named = {name for name, _, _ in succeeding}
    assert {name for name in OPERATIONS if name not in named} == {
        name for name in OPERATIONS if name.startswith("refuseMcp")
    }
    for name, media_type, schema in succeeding:
        if media_type in TEXTS:
            assert schema == {"type": "string"}, name
            continue
        answer = schemas[schema["$ref"].rpartition("/")[2]]
        assert answer["properties"], name
        assert answer["description"], name


def test_every_member_of_an_answer_has_a_type(described: Json) -> None:
    """But of JSON-RPC the caller's own id and the result, and this very document."""
    schemas = described["components"]["schemas"]
    answers = named_by([operation["responses"] for operation in operations(described)], schemas)
    untyped = {
        f"{name}.{member}"
        for name in answers
        for member, schema in schemas[name].get("properties", {}).items()
        for one in schemas_in(schema)
        if not one or one == {"type": "object"} or one.get("additionalProperties") is True
    }
    assert untyped == {
        "JsonRpcAnswer.id", "JsonRpcAnswer.result",
        "OpenApiAnswer.paths", "OpenApiAnswer.components",
    }  # fmt: skip


def test_schemas_have_plain_names_and_are_all_there(described: Json) -> None:
    schemas = described["components"]["schemas"]
    assert named_by(described["paths"], schemas) == set(schemas)
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", name) for name in schemas)


def test_choices_of_words_are_strings(described: Json) -> None:
    choices = [schema for schema in schemas_in(described) if isinstance(schema.get("enum"), list)]
    assert len(choices) > 20
    for schema in choices:
        if all(isinstance(word, str) for word in schema["enum"]):
            assert schema["type"] == "string"
