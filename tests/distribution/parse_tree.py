"""What PostgreSQL made of a statement: its own parse tree, with every name resolved.

Not here: rules on it. A parser of our own, or a library's, would be another opinion on the same
text; the server prints its tree when `debug_print_parse` is on.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg

Value: TypeAlias = "Node | list[Value] | str"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}()\[\]]|(?:[^\s{}()\[\]\\]|\\.)+', re.DOTALL)
_SETTINGS = (
    "SET debug_print_parse = on",
    "SET debug_pretty_print = off",
    "SET client_min_messages = log",
)


@dataclass
class Node:
    """One node: its kind and its members, most of which have one value."""

    kind: str
    members: dict[str, list[Value]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A member that is a number or a word; "" when it is not there."""
        values = self.members.get(name, [])
        return values[0] if values and isinstance(values[0], str) else ""

    def number(self, name: str) -> int:
        """A member that is a number; 0 when it is not there."""
        return int(self.text(name) or 0)

    def node(self, name: str) -> "Node | None":
        """A member that is a node."""
        values = self.members.get(name, [])
        return values[0] if values and isinstance(values[0], Node) else None

    def nodes(self, name: str) -> list["Node"]:
        """A member that is a list of nodes."""
        values = self.members.get(name, [])
        found = values[0] if values else []
        return [v for v in found if isinstance(v, Node)] if isinstance(found, list) else []

    def within(self, *, into: str = "") -> Iterator["Node"]:
        """Every node below this one; not below nodes of the kind `into`, which come themselves."""
        waiting: list[Value] = [v for values in self.members.values() for v in values]
        while waiting:
            value = waiting.pop()
            if isinstance(value, list):
                waiting += value
            elif isinstance(value, Node):
                yield value
                if value.kind != into:
                    waiting += [v for values in value.members.values() for v in values]


def read(text: str) -> list[Value]:
    """The values that PostgreSQL's printed tree holds."""
    stack: list[list[Value]] = [[]]
    closing = {")": "(", "]": "["}
    for token in _TOKEN.findall(text):
        if token == "{" or token in closing.values():
            stack.append([])
        elif token in closing:
            values = stack.pop()
            stack[-1].append(values)
        elif token == "}":
            stack[-2].append(_node(stack.pop()))
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]


def _node(values: list[Value]) -> Node:
    assert isinstance(values[0], str)
    node, name = Node(values[0]), ""
    for value in values[1:]:
        if isinstance(value, str) and value.startswith(":"):
            name = value[1:]
            node.members[name] = []
        else:
            node.members[name].append(value)
    return node


async def parsed(
    connect_args: Mapping[str, Any], statements: Mapping[str, str]
) -> dict[str, list[Node]]:
    """Name → the queries that PostgreSQL makes of each statement."""
    connection = await asyncpg.connect(**connect_args)
    told: asyncio.Queue[str] = asyncio.Queue()

    def tell(_: object, message: Any) -> None:
        if message.message == "parse tree:":
            told.put_nowait(message.detail)

    try:
        for setting in _SETTINGS:
            await connection.execute(setting)
        connection.add_log_listener(tell)
        trees = {}
        for name, text in statements.items():
            await connection.prepare(text)
            trees[name] = [n for n in read(await told.get()) if isinstance(n, Node)]
            while not told.empty():  # what asyncpg asked about its types after that
                told.get_nowait()
        connection.remove_log_listener(tell)
        return trees
    finally:
        await connection.close()
