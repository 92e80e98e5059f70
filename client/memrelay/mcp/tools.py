"""The tools of the MCP server: what a model may call, and with which arguments.

It does not own how an argument is read (`argument_types.py`), what a model reads of a memory
(`rendering.py`), failures and deadlines (`server.py`).

- Every argument has a type, a description and a bound; an unknown one is refused.
- What looks like instructions to a model is not stored, be it in a tag: it would not be shown.
- Nothing is erased but by id, unless a filter is given and the dry run is switched off.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from memrelay.async_client import MemoryClient
from memrelay.errors import Invalid
from memrelay.extraction import degradation
from memrelay.gateway.erasure_mark import note_erasure
from memrelay.gateway.filters import looks_injected
from memrelay.gateway.framing import Reader
from memrelay.gateway.profiles import LiveProfile
from memrelay.local_time import to_local
from memrelay.mcp.argument_types import (
    ID_PATTERN,
    Cursor,
    Kind,
    MemoryId,
    Moment,
    NoneIfPlaceholder,
    Space,
    Tags,
    Text,
    TextsAsTheyCame,
    Time,
)
from memrelay.mcp.rendering import (
    AnalyzeResult,
    ListResult,
    Namespaces,
    Rendering,
    SearchResult,
    Single,
    describe_erasure,
    describe_redactions,
    make_result,
    note_of,
    plain,
    render_list,
    render_one,
)
from memrelay.mcp.schemas import shorten_schema, without_receipts
from memrelay.models import Forgotten, NamespaceInfo, Remembered, Restored
from memrelay.operations.lists import Filters
from memrelay.outcomes import Edited, ForgottenMany, StateChanged
from memrelay.plurals import format_count
from memrelay.sealed.keys import normalise_namespace

_REVIEWED = 20
CORE = ("memory_recall", "memory_remember", "memory_get", "memory_edit", "memory_forget")
# Which tools a model is told of: each costs a part of its context.
SETS: Mapping[str, Callable[[Tool], bool]] = {
    "all": lambda tool: True,
    "core": lambda tool: tool.name in CORE,
    "read": lambda tool: bool(tool.annotations and tool.annotations.read_only_hint),
}


class _Tools:
    """The tools; their docstrings and parameters are what a model reads."""

    def __init__(self, profile: LiveProfile) -> None:
        self._profile = profile

    @property
    def _client(self) -> MemoryClient:
        return client_of(self._profile)

    @property
    def _reader(self) -> Reader:
        return reader_of(self._profile)

    async def memory_remember(
        self,
        text: Annotated[
            str,
            Field(min_length=3, max_length=65_536, description="One self-contained statement."),
            Text,
        ],
        namespace: Space = None,
        kind: Annotated[Kind | None, Field(description="What sort of memory it is.")] = None,
        tags: Tags = None,
        event_time: Moment = None,
        importance: Annotated[
            Literal["vital", "standard", "trivial"] | None,
            Field(description="How much it matters."),
        ] = None,
    ) -> Annotated[CallToolResult, Remembered]:
        """Store one lasting fact, preference, decision or event, exactly as worded.

        Write it so that it makes sense without this conversation: names instead of "he", dates
        instead of "tomorrow". Storing it again changes nothing.
        """
        _check_said("text", text)
        _check_harmless(text, namespace or "", *(tags or ()))
        kept = await self._client.remember(
            text,
            namespace=namespace,
            kind=kind,
            tags=tags,
            event_time=event_time,
            importance=importance,
            source="mcp",
        )
        known = "It was known already" if kept.duplicate else "Remembered"
        place = f"id {plain(kept.id)} in {plain(kept.namespace)}"
        return make_result(f"{known}: {place}.{describe_redactions(kept)}", kept)

    async def memory_recall(
        self,
        query: Annotated[
            str,
            Field(min_length=1, max_length=4000, description="A question or some words."),
            Text,
        ],
        namespace: Space = None,
        limit: Annotated[int, Field(ge=1, le=20, description="How many at most.")] = 5,
        kinds: Annotated[
            list[Kind] | None, Field(max_length=9, description="Only of these kinds.")
        ] = None,
        tags: Tags = None,
        after: Moment = None,
        before: Moment = None,
        speaker: Annotated[
            str | None,
            Field(max_length=60, description="Only what this person said; or user, or assistant."),
            Text,
            NoneIfPlaceholder,
        ] = None,
        relevance_min: Annotated[
            float, Field(ge=0, le=1, description="Leave out what is less relevant.")
        ] = 0.3,
        goal: Annotated[
            str | None,
            Field(
                max_length=1000,
                description="What you are about to do, if the query alone does not tell.",
            ),
            Text,
            NoneIfPlaceholder,
        ] = None,
        deep: Annotated[
            bool,
            Field(description="Look further, for a list, a count or several things; takes longer."),
        ] = False,
    ) -> Annotated[CallToolResult, SearchResult]:
        """Search the memory by meaning and by words, best first.

        Use it before you answer anything that may rest on earlier conversations. Answer from what
        it finds; if it finds nothing, say that there is no memory of it.
        """
        _check_said("query", query)
        _check_order(after, before)
        found = await self._client.recall(
            query,
            namespace=namespace,
            limit=limit,
            kinds=kinds or None,
            tags=tags,
            after=after,
            before=before,
            speaker=speaker if speaker and speaker.strip() else None,
            min_relevance=relevance_min,
            goal=goal if goal and goal.strip() else None,
            deep=deep or None,
        )
        told = Rendering.of_search(found, self._reader)
        answer = SearchResult(
            results=told.memories,
            total=len(told.memories),
            withheld=told.withheld,
            omitted=told.omitted,
            dropped_count=found.dropped_count,
            degraded=found.degraded,
            note=note_of(found),
        )
        return make_result(told.text, answer)

    async def memory_analyze(
        self,
        text: Annotated[
            str,
            Field(min_length=3, max_length=60_000, description="A conversation or another text."),
            Text,
        ],
        namespace: Space = None,
        occurred_at: Annotated[
            Time | None,
            Field(
                description='When it took place, RFC 3339: "yesterday" counts from it, else now.'
            ),
        ] = None,
    ) -> Annotated[CallToolResult, AnalyzeResult]:
        """Find the facts worth keeping in a conversation or text, and store each of them.

        For a single statement, memory_remember is better.
        """
        _check_said("text", text)
        _check_harmless(text, namespace or "")
        found = await self._client.analyze(
            text,
            namespace=namespace,
            occurred_at=occurred_at or to_local(datetime.now(UTC)),
            source="mcp",
        )
        space = namespace or self._client.settings.namespace
        told = Rendering.of_facts(found.facts, space, self._reader)
        note = degradation(found)
        head = (
            f"{format_count(found.fact_count, 'fact')} stored ({plain(found.status)})."
            f"{describe_redactions(found)}"
            f"{f' {plain(note)}' if note else ''}"
        )
        answer = AnalyzeResult(
            facts=told.memories,
            fact_count=found.fact_count,
            status=found.status,
            note=note,
            withheld=told.withheld,
            omitted=told.omitted,
        )
        problem = f" {plain(found.problem)}" if found.problem else ""
        return make_result(f"{head}{problem}\n{told.text}".strip(), answer)

    async def memory_get(
        self, memory_id: MemoryId, namespace: Space = None
    ) -> Annotated[CallToolResult, Single]:
        """Read one memory by its id: in full, but for what is beyond about 25,000 tokens."""
        return make_result(
            *render_one(await self._client.get(memory_id, namespace=namespace), self._reader)
        )

    async def memory_list(
        self,
        namespace: Space = None,
        limit: Annotated[int, Field(ge=1, le=50, description="How many at most.")] = 20,
        cursor: Cursor = None,
        kind: Annotated[Kind | None, Field(description="Only of this kind.")] = None,
        tags: Tags = None,
        after: Moment = None,
        before: Moment = None,
        state: Annotated[
            Literal["active", "superseded", "pending_review", "rejected", "all"],
            Field(description="Active ones are recalled, the others are not."),
        ] = "active",
        pinned: Annotated[bool | None, Field(description="True: only pinned ones.")] = None,
    ) -> Annotated[CallToolResult, ListResult]:
        """List memories, newest first, page by page. To find something, memory_recall is better."""
        _check_order(after, before)
        page = await self._client.list(
            namespace=namespace,
            limit=limit,
            cursor=cursor,
            kind=kind,
            tags=tags,
            after=after,
            before=before,
            state=state,
            pinned=pinned,
        )
        return render_list(page.memories, page.next_cursor, "There are none.", self._reader)

    async def memory_history(
        self, memory_id: MemoryId, namespace: Space = None
    ) -> Annotated[CallToolResult, ListResult]:
        """Show what a memory says and what it said before, newest first."""
        found = await self._client.history(memory_id, namespace=namespace)
        return render_list(found.revisions, None, "It has no history.", self._reader)

    async def memory_edit(
        self,
        memory_id: MemoryId,
        text: Annotated[
            str | None,
            Field(min_length=3, max_length=65_536, description="The whole new statement."),
            Text,
        ] = None,
        kind: Annotated[Kind | None, Field(description="What sort of memory it is.")] = None,
        tags: Annotated[
            list[Annotated[str, Field(min_length=1, max_length=128), Text]] | None,
            Field(max_length=32, description="Instead of the tags that it has."),
        ] = None,
        revision: Annotated[
            int | None,
            Field(ge=1, le=1 << 30, description="The one you read, to overwrite no other."),
        ] = None,
        namespace: Space = None,
    ) -> Annotated[CallToolResult, Edited]:
        """Correct one memory that is wrong or out of date; what it said before stays as history."""
        if text is None and kind is None and tags is None:
            raise Invalid("arguments", "text, kind, tags: give at least one, to be changed.")
        if text is not None:
            _check_said("text", text)
        _check_harmless(text or "", *(tags or ()))
        done = await self._client.edit(
            memory_id, text=text, kind=kind, tags=tags, revision=revision, namespace=namespace
        )
        told = "said that already" if done.unchanged else f"is revision {done.revision} now"
        return make_result(f"Memory {memory_id} {told}.{describe_redactions(done)}", done)

    async def memory_pin(
        self,
        memory_id: MemoryId,
        pinned: Annotated[bool, Field(description="False unpins it.")] = True,
    ) -> Annotated[CallToolResult, StateChanged]:
        """Pin one memory: it is neither replaced by newer ones nor expired by its namespace."""
        done = await self._client.set_state(memory_id, pinned=pinned)
        return make_result(
            f"Memory {memory_id} is {'pinned' if done.pinned else 'not pinned'}.", done
        )

    async def memory_review(
        self, namespace: Space = None, cursor: Cursor = None
    ) -> Annotated[CallToolResult, ListResult]:
        """List memories that wait for the user: doubtful ones, and ones that contradict others.

        Behind one that contradicts others come these.
        """
        page = await self._client.review(namespace=namespace, limit=_REVIEWED, cursor=cursor)
        told = {one.id: one for waiting in page.memories for one in (waiting, *waiting.others)}
        return render_list(list(told.values()), page.next_cursor, "Nothing waits.", self._reader)

    async def memory_decide(
        self,
        memory_id: MemoryId,
        decision: Annotated[
            Literal["approved", "rejected"], Field(description="Rejected ones are never recalled.")
        ],
    ) -> Annotated[CallToolResult, StateChanged]:
        """Approve or reject one memory that waits. Only as the user decided."""
        done = await self._client.set_state(memory_id, review=decision)
        return make_result(f"Memory {memory_id} is {decision}.", done)

    async def memory_forget(self, memory_id: MemoryId) -> Annotated[CallToolResult, Forgotten]:
        """Erase one memory for good, with its history. Only when the user asks for it."""
        note_erasure(self._client.settings)
        gone = await self._client.forget(memory_id)
        state = "is erased" if gone.erased and not gone.pending else "is being erased"
        return make_result(f"Memory {memory_id} {state}.", gone)

    async def memory_forget_many(
        self,
        memory_ids: Annotated[
            list[Annotated[str, Field(pattern=ID_PATTERN)]] | None,
            Field(min_length=1, max_length=100, description="Their ids, or else a filter."),
        ] = None,
        namespace: Space = None,
        kind: Annotated[Kind | None, Field(description="Of this kind.")] = None,
        tags: Tags = None,
        source: Annotated[
            str | None, Field(min_length=1, max_length=512, description="Of this source.")
        ] = None,
        before: Moment = None,
        dry_run: Annotated[
            bool, Field(description="Only count and list them; false erases them.")
        ] = True,
    ) -> Annotated[CallToolResult, ForgottenMany]:
        """Erase several memories for good: of these ids, or all that fit the filters.

        Without dry_run=false it only tells which. Show the user that first, and erase only what
        the user agreed to.
        """
        # Models fill in what they need not: no tags are no filter.
        filters: Filters = {"kind": kind, "tags": tags or None, "source": source, "before": before}
        filtered = any(value is not None for value in filters.values())
        if (memory_ids is not None) == filtered:
            raise Invalid("arguments", "Give memory_ids, or at least one filter.")
        if memory_ids is not None and namespace is not None:
            raise Invalid("arguments", "namespace: it goes with filters; leave it out with ids.")
        if not dry_run:
            note_erasure(self._client.settings)
        if memory_ids is not None:
            gone = await self._client.forget_many(memory_ids, dry_run=dry_run)
        else:
            gone = await self._client.forget_matching(
                namespace=namespace, dry_run=dry_run, **filters
            )
        return make_result(describe_erasure(gone, dry_run=dry_run), gone)

    async def memory_restore(
        self,
        namespace: Space = None,
        limit: Annotated[
            int | None, Field(ge=1, le=10_000, description="How many objects at most.")
        ] = None,
    ) -> Annotated[CallToolResult, Restored]:
        """Rebuild the search index of a namespace from its stored, sealed objects.

        For repair, when memories that exist are not found. It changes no memory.
        """
        done = await self._client.restore(namespace=namespace, limit=limit)
        more = " There are more: call it again." if done.truncated else ""
        text = f"{done.restored} restored, {done.skipped} in order, {done.failed} failed.{more}"
        return make_result(text, done)

    async def memory_namespaces(self) -> Annotated[CallToolResult, Namespaces]:
        """List the namespaces that this key may see, with the number of memories in each."""
        infos = await self._client.namespaces()
        # The relayer lists those that hold something; one to be shared is empty at first.
        granted = set(await self._client.granted() or ()) - {info.name for info in infos}
        infos += tuple(NamespaceInfo(name=name) for name in sorted(granted))
        default = self._client.settings.namespace
        lines = [
            f"{plain(info.name)}: {format_count(info.memory_count, 'memory')}" for info in infos
        ]
        text = "\n".join([f"When none is named: {plain(default)}.", *lines])
        return make_result(text, Namespaces(default=default, namespaces=infos))


def client_of(profile: LiveProfile) -> MemoryClient:
    """Return the client of a profile that could be used when the server began."""
    client = profile.client()
    assert client is not None
    return client


def reader_of(profile: LiveProfile) -> Reader:
    """Return the agent of such a profile as the reader of memories."""
    settings = client_of(profile).settings
    return Reader(public_key=settings.public_key, namespace=normalise_namespace(settings.namespace))


def tools_of(profile: LiveProfile, chosen: str = "all") -> list[Tool]:
    """Return the tools of one agent's memory; `chosen` is a key of `SETS`."""
    tools = _Tools(profile)
    made = [
        _tool(tools.memory_recall, "Search the memory", read_only=True),
        _tool(tools.memory_remember, "Remember a statement"),
        _tool(tools.memory_analyze, "Remember the facts of a text", idempotent=False),
        _tool(tools.memory_get, "Read a memory", read_only=True),
        _tool(tools.memory_list, "List the memories", read_only=True),
        _tool(tools.memory_history, "Show a memory's history", read_only=True),
        _tool(tools.memory_edit, "Correct a memory"),
        _tool(tools.memory_pin, "Pin a memory"),
        _tool(tools.memory_review, "List what waits for review", read_only=True),
        _tool(tools.memory_decide, "Approve or reject a memory"),
        _tool(tools.memory_forget, "Erase a memory", destructive=True),
        _tool(tools.memory_forget_many, "Erase several memories", destructive=True),
        _tool(tools.memory_restore, "Rebuild the search index"),
        _tool(tools.memory_namespaces, "List the namespaces", read_only=True),
    ]
    return [tool for tool in made if SETS[chosen](tool)]


def _tool(
    method: Callable[..., Any],
    title: str,
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = True,
) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=read_only,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=False,
    )
    tool = Tool.from_function(
        method, title=title, description=inspect.getdoc(method), annotations=hints
    )
    # A misspelt namespace must not put a memory into another one.
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = shorten_schema(arguments.model_json_schema(by_alias=True))
    metadata = dict(tool.fn_metadata)
    metadata["output_schema"] = without_receipts(metadata["output_schema"])
    tool.fn_metadata = TextsAsTheyCame(**metadata)
    return tool


def _check_said(name: str, text: str) -> None:
    if not text.strip():
        raise Invalid("arguments", f"{name}: there is nothing in it but blanks.")


def _check_order(after: datetime | None, before: datetime | None) -> None:
    if after is not None and before is not None and after >= before:
        raise Invalid("arguments", "after, before: the first has to be the earlier time.")


def _check_harmless(*texts: str) -> None:
    if any(map(looks_injected, texts)):
        raise Invalid("looks_injected", "This looks like instructions to a model; not stored.")
