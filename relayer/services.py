"""The services, built once on a storage, and the worker that follows up.

Not here: the parts, HTTP on top of them (`app.py`), what commands need of them (`storage.py`).
"""

from dataclasses import dataclass

from relayer.archives.arriving import Arriving
from relayer.archives.rows import ArrivingRows
from relayer.clock import Clock
from relayer.embedding.building import build_older_embedder, for_storing
from relayer.embedding.embedders import Embedder
from relayer.embedding.models import Embedders
from relayer.embedding.passages import count_bytes
from relayer.events.delivery import Delivery
from relayer.events.outward import Poster
from relayer.events.webhooks import Webhooks
from relayer.extraction.facts import Extractor
from relayer.extraction.model import LlmExtractor
from relayer.extraction.procedure import ProcedureFinder
from relayer.extraction.rules import SentenceExtractor
from relayer.extraction.summary import Summariser
from relayer.jobs import Worker
from relayer.journal.states import States
from relayer.llm import LanguageModel
from relayer.memories.analysis import Analysis
from relayer.memories.asking import Asking
from relayer.memories.consolidation import Consolidator
from relayer.memories.consolidation_plan import Planner
from relayer.memories.eraser import Eraser
from relayer.memories.expiry import Expiry
from relayer.memories.forgetting import Forgetting
from relayer.memories.history import Histories
from relayer.memories.indexing import Indexer
from relayer.memories.intake import Intake
from relayer.memories.manual import Manual
from relayer.memories.memory import MemoryService
from relayer.memories.opening import Opener
from relayer.memories.recall import RecallService
from relayer.memories.reseal import Resealer
from relayer.memories.reviewing import Reviewer
from relayer.memories.revising import Reviser
from relayer.memories.runs import Runs
from relayer.memories.states import StateChanger
from relayer.memories.turns import Turns
from relayer.memories.writer import Writer
from relayer.query.vectors import QueryEmbedder
from relayer.recovery.collection import Collector
from relayer.recovery.lost import Finder
from relayer.recovery.restore import Restore
from relayer.resident.index import ResidentIndex
from relayer.settings import Settings
from relayer.storage import Storage, replay_on
from relayer.tenants.closing import Closing
from relayer.tenants.rotation import Rotations
from relayer.waiting import Waiting


def build_language_model(settings: Settings) -> LanguageModel | None:
    """The chat model the settings name, or None."""
    if not settings.llm_model:
        return None
    return LanguageModel(
        base_url=settings.openai_base_url,
        api_key=settings.openai_api_key,
        model=settings.llm_model,
        timeout_s=settings.llm_timeout_s,
    )


@dataclass(frozen=True)
class Services:
    """What turns a checked request into an answer, and the worker that follows up."""

    embedders: Embedders
    memory: MemoryService
    reviser: Reviser
    histories: Histories
    reviewer: Reviewer
    state_changer: StateChanger
    turns: Turns
    recaller: RecallService
    resident: ResidentIndex
    indexer: Indexer
    analysis: Analysis
    asking: Asking
    restore: Restore
    manual: Manual
    eraser: Eraser
    forgetting: Forgetting
    expiry: Expiry
    closing: Closing
    collector: Collector
    rotations: Rotations
    worker: Worker
    waiting: Waiting
    resealer: Resealer
    planner: Planner
    consolidator: Consolidator
    runs: Runs
    arriving: Arriving
    webhooks: Webhooks
    delivery: Delivery


def build_services(
    storage: Storage,
    settings: Settings,
    *,
    embedder: Embedder | None,
    language_model: LanguageModel | None,
    clock: Clock,
) -> Services:
    """The services on a storage; the worker does not run yet."""
    eraser = Eraser(
        database=storage.database, outbox=storage.outbox, identity=storage.identity, clock=clock
    )
    states = States(outbox=storage.outbox, identity=storage.identity)
    writer = Writer(
        database=storage.database,
        accounts=storage.accounts,
        outbox=storage.outbox,
        eraser=eraser,
        states=states,
        identity=storage.identity,
        storage_bytes_max=settings.storage_bytes_max,
        embeds=embedder is not None,
        clock=clock,
    )
    intake = Intake(
        database=storage.database, namespaces=storage.namespaces, writer=writer, clock=clock
    )
    opener = Opener(blobs=storage.blobs, embeds=embedder is not None)
    finder = Finder(database=storage.database, blobs=storage.blobs, relayers=storage.relayers)
    forgetting = Forgetting(
        database=storage.database,
        accounts=storage.accounts,
        namespaces=storage.namespaces,
        eraser=eraser,
        waits=finder.waits,
        clock=clock,
    )
    memory = MemoryService(
        database=storage.database,
        opener=opener,
        namespaces=storage.namespaces,
        intake=intake,
        forgetting=forgetting,
        embeds=embedder is not None,
        clock=clock,
    )
    reviser = Reviser(
        database=storage.database,
        accounts=storage.accounts,
        outbox=storage.outbox,
        opener=opener,
        namespaces=storage.namespaces,
        writer=writer,
        eraser=eraser,
        identity=storage.identity,
        embeds=embedder is not None,
        clock=clock,
    )
    histories = Histories(database=storage.database, opener=opener, clock=clock)
    reviewer = Reviewer(
        database=storage.database, opener=opener, namespaces=storage.namespaces, clock=clock
    )
    state_changer = StateChanger(
        database=storage.database,
        accounts=storage.accounts,
        outbox=storage.outbox,
        states=states,
        eraser=eraser,
        clock=clock,
    )
    turns = Turns(
        database=storage.database,
        opener=opener,
        namespaces=storage.namespaces,
        clock=clock,
    )
    resident = ResidentIndex(database=storage.database, bytes_max=settings.index_memory_bytes)
    embedders = Embedders(
        current=embedder, load=lambda model_id: build_older_embedder(settings, model_id)
    )
    recaller = RecallService(
        database=storage.database,
        opener=opener,
        namespaces=storage.namespaces,
        embedder=QueryEmbedder(database=storage.database, embedders=embedders),
        resident=resident,
        count_tokens=count_bytes if embedder is None else embedder.count_tokens,
        clock=clock,
    )
    indexer = Indexer(database=storage.database, opener=opener, embedder=for_storing(embedder))
    rules = SentenceExtractor()
    extractor: Extractor = rules
    patient: Extractor = rules
    if language_model is not None:
        extractor = LlmExtractor(model=language_model)
        patient = LlmExtractor(model=language_model, patient=True)
    analysis = Analysis(
        recaller=recaller,
        opener=opener,
        intake=intake,
        writer=writer,
        extractor=extractor,
        patient=patient,
        rules=rules,
        model=language_model,
        accounts=storage.accounts,
        database=storage.database,
        blobs=storage.blobs,
        namespaces=storage.namespaces,
        clock=clock,
        request_timeout_s=settings.request_timeout_s,
    )
    resealer = Resealer(
        database=storage.database,
        blobs=storage.blobs,
        outbox=storage.outbox,
        namespaces=storage.namespaces,
        identity=storage.identity,
        clock=clock,
    )
    rotations = Rotations(
        database=storage.database,
        blobs=storage.blobs,
        accounts=storage.accounts,
        granting=storage.granting,
        custody=storage.custody,
        needs=finder.needs,
        identity=storage.identity,
        clock=clock,
    )
    expiry = Expiry(
        database=storage.database,
        accounts=storage.accounts,
        namespaces=storage.namespaces,
        eraser=eraser,
        clock=clock,
    )
    closing = Closing(
        database=storage.database,
        accounts=storage.accounts,
        blobs=storage.blobs,
        outbox=storage.outbox,
        identity=storage.identity,
        clock=clock,
    )
    collector = Collector(
        database=storage.database,
        blobs=storage.blobs,
        replay=replay_on(storage, clock),
        relayers=storage.relayers,
        clock=clock,
    )
    restore = Restore(
        database=storage.database,
        accounts=storage.accounts,
        blobs=storage.blobs,
        namespaces=storage.namespaces,
        writer=writer,
        outbox=storage.outbox,
        identity=storage.identity,
        finder=finder,
        clock=clock,
    )
    planner = Planner(
        database=storage.database, opener=opener, namespaces=storage.namespaces, clock=clock
    )
    consolidator = Consolidator(
        planner=planner,
        database=storage.database,
        outbox=storage.outbox,
        accounts=storage.accounts,
        namespaces=storage.namespaces,
        writer=writer,
        states=states,
        summariser=Summariser(model=language_model),
        finder=ProcedureFinder(model=language_model),
        identity=storage.identity,
        clock=clock,
    )
    runs = Runs(
        database=storage.database,
        accounts=storage.accounts,
        outbox=storage.outbox,
        namespaces=storage.namespaces,
        eraser=eraser,
        states=states,
        identity=storage.identity,
        clock=clock,
    )
    waiting = Waiting(
        database=storage.database,
        indexer=indexer,
        runs=runs,
        custody=storage.custody,
        namespaces=storage.namespaces,
        clock=clock,
    )
    worker = Worker(
        connect_args=storage.connect_args,
        database=storage.database,
        indexer=indexer,
        analysis=analysis,
        resealer=resealer,
        consolidator=consolidator,
        restore=restore,
        custody=storage.custody,
        waiting=waiting,
        outbox=storage.outbox,
        chores=(
            expiry.expire,
            closing.purge,
            collector.collect,
        ),
    )
    manual = Manual(
        database=storage.database,
        namespaces=storage.namespaces,
        writer=writer,
        resident=resident,
        clock=clock,
    )
    arriving = Arriving(
        database=storage.database,
        needs=finder.needs,
        accounts=storage.accounts,
        granting=storage.granting,
        namespaces=storage.namespaces,
        outbox=storage.outbox,
        eraser=eraser,
        rows=ArrivingRows(
            accounts=storage.accounts,
            outbox=storage.outbox,
            states=states,
            identity=storage.identity,
            embedding_model=None if embedder is None else embedder.model_id,
            storage_bytes_max=settings.storage_bytes_max,
            clock=clock,
        ),
        identity=storage.identity,
        clock=clock,
    )
    return Services(
        embedders=embedders,
        memory=memory,
        turns=turns,
        reviser=reviser,
        histories=histories,
        reviewer=reviewer,
        state_changer=state_changer,
        recaller=recaller,
        resident=resident,
        indexer=indexer,
        analysis=analysis,
        asking=Asking(recaller=recaller, model=language_model),
        restore=restore,
        manual=manual,
        eraser=eraser,
        forgetting=forgetting,
        expiry=expiry,
        closing=closing,
        collector=collector,
        rotations=rotations,
        worker=worker,
        waiting=waiting,
        resealer=resealer,
        planner=planner,
        consolidator=consolidator,
        runs=runs,
        arriving=arriving,
        webhooks=Webhooks(
            database=storage.database,
            accounts=storage.accounts,
            identity=storage.identity,
            reach=settings.webhook_reach,
            clock=clock,
        ),
        delivery=Delivery(
            database=storage.database,
            identity=storage.identity,
            relayers=storage.relayers,
            poster=Poster(reach=settings.webhook_reach),
            clock=clock,
        ),
    )
