"""Handlers are given parts of the relayer by a field's name, which has the type they expect."""

from collections.abc import Iterator
from dataclasses import fields
from typing import get_type_hints

from litestar.handlers import HTTPRouteHandler

from relayer.app import Web
from relayer.services import Services
from tests.framework import listed_handlers

PARTS = {name: kind for holder in (Services, Web) for name, kind in get_type_hints(holder).items()}


def handlers() -> Iterator[HTTPRouteHandler]:
    """All handlers but those that the framework answers OPTIONS with."""
    for _, handler in listed_handlers():
        if handler.fn.__module__.startswith("relayer."):
            yield handler


def test_no_two_parts_have_one_name() -> None:
    assert len(PARTS) == sum(len(fields(holder)) for holder in (Services, Web))


def test_each_part_is_of_the_type_that_is_asked_for() -> None:
    asked = 0
    for handler in handlers():
        for name, kind in get_type_hints(handler.fn).items():
            if name in PARTS:
                assert kind == PARTS[name], (handler, name)
                asked += 1
    assert asked > 80
