"""The services, built once on a storage, and the worker that follows up.

Not here: the parts, HTTP on top of them (`app.py`), what commands need of them (`storage.py`).
"""

from dataclasses import dataclass

from relayer.affinity import ALONE, Affinity
from relayer.archives.exporter import Exporter
from relayer.archives.grant_importer import GrantImporter
from relayer.archives.importer import Importer
from relayer.archives.row_importer import RowImporter
from relayer.clock import Clock
from relayer.embedding.building import build_older_embedder, for_storing
from relayer.embedding.embedders import Embedder
from relayer.embedding.models import Embedders
from relayer.events.delivery import Delivery
from relayer.events.egress import Poster
from relayer.events.webhooks import Webhooks
from relayer.extraction.facts import Extractor
from relayer.extraction.model import LlmExtractor
from relayer.extraction.procedure import ProcedureFinder
from relayer.extraction.rules import SentenceExtractor
from relayer.extraction.summary import Summariser
from relayer.jobs import Tasks, Worker
from relayer.llm import LanguageModel
from relayer.memories.analysis import Analysis, Extractors
from relayer.memories.answerer import Answerer
from relayer.memories.consolidation import Consolidator
from relayer.memories.consolidation_plan import Planner
from relayer.memories.deep_recall import DeepRecaller, deadline_of_looks
from relayer.memories.deletion import Deletion
from relayer.memories.derivation import Deriver
from relayer.memories.episode_facts import EpisodeFacts
from relayer.memories.episodes import Episodes
from relayer.memories.eraser import Eraser
from relayer.memories.expiry import Expiry
from relayer.memories.history import Histories
from relayer.memories.index_choice import IndexChooser, IndexMover
from relayer.memories.indexer import Indexer
from relayer.memories.intake import Intake
from relayer.memories.manual import Manual
from relayer.memories.memory import MemoryService
from relayer.memories.opener import Opener
from relayer.memories.recall import RecallService
from relayer.memories.record_search import RecordSearch
from relayer.memories.related import RelatedMemories
from relayer.memories.reseal import Resealer
from relayer.memories.reviews import Reviewer
from relayer.memories.revisions import Reviser
from relayer.memories.runs import Runs
from relayer.memories.sealed_episodes import SealedEpisodes
from relayer.memories.states import StateChanger
from relayer.memories.writer import Writer
from relayer.memory_index.ahead import AheadLoader
from relayer.memory_index.index import MemoryIndex
from relayer.query.vectors import QueryEmbedder
from relayer.recovery.collection import Collector
from relayer.recovery.orphans import Finder
from relayer.recovery.restore import Restore
from relayer.settings import Settings
from relayer.storage import Storage, closing_on, replay_on
from relayer.sweeper import Indexing, Sweeper
from relayer.tenants.closing import Closing
from relayer.tenants.proof import Proof
from relayer.tenants.rotation import Rotations
from relayer.tenants.rotation_progress import RotationProgress


def build_language_model(settings: Settings) -> LanguageModel | None:
    """Return the chat model the settings name, or None."""
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
    """The services that turn a checked request into an answer, and the worker that follows up."""

    embedders: Embedders
    memory: MemoryService
    intake: Intake
    reviser: Reviser
    histories: Histories
    reviewer: Reviewer
    state_changer: StateChanger
    episodes: Episodes
    recaller: RecallService
    deep_recaller: DeepRecaller
    memory_index: MemoryIndex
    ahead_loader: AheadLoader
    indexer: Indexer
    index_chooser: IndexChooser
    index_mover: IndexMover
    analysis: Analysis
    answerer: Answerer
    restore: Restore
    manual: Manual
    eraser: Eraser
    deletion: Deletion
    expiry: Expiry
    closing: Closing
    collector: Collector
    rotations: Rotations
    worker: Worker
    sweeper: Sweeper
    resealer: Resealer
    planner: Planner
    consolidator: Consolidator
    runs: Runs
    importer: Importer
    exporter: Exporter
    proof: Proof
    webhooks: Webhooks
    delivery: Delivery


@dataclass(frozen=True)
class _Parts:
    """The parts that most services are built of."""

    storage: Storage
    embedder: Embedder | None
    language_model: LanguageModel | None
    clock: Clock
    eraser: Eraser
    writer: Writer
    intake: Intake
    opener: Opener
    finder: Finder


def build_services(
    storage: Storage,
    settings: Settings,
    *,
    embedder: Embedder | None,
    language_model: LanguageModel | None,
    clock: Clock,
    affinity: Affinity = ALONE,
) -> Services:
    """Return the services on a storage; the worker does not run yet."""
    parts = _parts(storage, settings, embedder, language_model, clock)
    database, namespaces, opener = storage.database, storage.namespaces, parts.opener
    embedders = Embedders(
        current=embedder, load=lambda model_id: build_older_embedder(settings, model_id)
    )
    memory_index = MemoryIndex(
        database=database, bytes_max=settings.index_memory_bytes, affinity=affinity
    )
    recaller = _recaller(parts, embedders, memory_index)
    records = RecordSearch(namespaces=namespaces, sealed=memory_index.sealed)
    indexer = Indexer(database=database, opener=opener, embedder=for_storing(embedder))
    mover = IndexMover(database=database, namespaces=namespaces)
    analysis = _analysis(parts, recaller, request_timeout_s=settings.request_timeout_s)
    planner = Planner(database=database, opener=opener, records=records)
    consolidator = _consolidator(parts, planner)
    runs = _runs(parts)
    resealer = _resealer(parts)
    restore = _restore(parts)
    deletion = _deletion(parts, records)
    expiry = Expiry(
        database=database,
        ledger=storage.ledger,
        namespaces=namespaces,
        eraser=parts.eraser,
        clock=clock,
    )
    closing = closing_on(storage, clock)
    collector = _collector(parts)
    sweeper = Sweeper(
        database=database,
        indexing=Indexing(indexer, mover),
        runs=runs,
        custody=storage.custody,
        namespaces=namespaces,
        clock=clock,
    )
    return Services(
        embedders=embedders,
        memory=_memory(parts, records, deletion),
        intake=parts.intake,
        reviser=_reviser(parts),
        histories=Histories(database=database, opener=opener),
        reviewer=Reviewer(database=database, opener=opener, namespaces=namespaces),
        state_changer=_state_changer(parts),
        episodes=Episodes(database=database, opener=opener, namespaces=namespaces),
        recaller=recaller,
        deep_recaller=_deep_recaller(
            parts, recaller, within_s=deadline_of_looks(settings.request_timeout_s)
        ),
        memory_index=memory_index,
        ahead_loader=AheadLoader(
            database=database,
            namespaces=namespaces,
            index=memory_index,
            job_keys=storage.custody.job_keys,
        ),
        indexer=indexer,
        index_chooser=IndexChooser(ledger=storage.ledger, namespaces=namespaces),
        index_mover=mover,
        analysis=analysis,
        answerer=_answerer(parts, recaller, settings),
        restore=restore,
        manual=_manual(parts, memory_index),
        eraser=parts.eraser,
        deletion=deletion,
        expiry=expiry,
        closing=closing,
        collector=collector,
        rotations=_rotations(parts),
        worker=Worker(
            connect_args=storage.connect_args,
            database=database,
            tasks=Tasks(
                indexer=indexer,
                mover=mover,
                memory_index=memory_index,
                analysis=analysis,
                resealer=resealer,
                consolidator=consolidator,
                restore=restore,
                outbox=storage.outbox,
                chores=(expiry.expire, closing.purge, collector.collect),
            ),
            custody=storage.custody,
            sweeper=sweeper,
        ),
        sweeper=sweeper,
        resealer=resealer,
        planner=planner,
        consolidator=consolidator,
        runs=runs,
        importer=_importer(parts, storage_bytes_max=settings.storage_bytes_max),
        exporter=Exporter(
            database=database,
            blobs=storage.blobs,
            identity=storage.identity,
            succession=storage.succession,
        ),
        proof=Proof(
            database=database,
            blobs=storage.blobs,
            identity=storage.identity,
            succession=storage.succession,
            clock=clock,
        ),
        webhooks=Webhooks(
            database=database,
            ledger=storage.ledger,
            identity=storage.identity,
            reach=settings.webhook_reach,
        ),
        delivery=Delivery(
            database=database,
            identity=storage.identity,
            relayers=storage.relayers,
            poster=Poster(reach=settings.webhook_reach),
            clock=clock,
        ),
    )


def _parts(
    storage: Storage,
    settings: Settings,
    embedder: Embedder | None,
    language_model: LanguageModel | None,
    clock: Clock,
) -> _Parts:
    database, embeds = storage.database, embedder is not None
    writer = Writer(
        database=database,
        ledger=storage.ledger,
        namespaces=storage.namespaces,
        storage_bytes_max=settings.storage_bytes_max,
        embeds=embeds,
    )
    return _Parts(
        storage=storage,
        embedder=embedder,
        language_model=language_model,
        clock=clock,
        eraser=Eraser(database=database, ledger=storage.ledger),
        writer=writer,
        intake=Intake(database=database, namespaces=storage.namespaces, writer=writer),
        opener=Opener(blobs=storage.blobs, embeds=embeds),
        finder=Finder(database=database, blobs=storage.blobs, relayers=storage.relayers),
    )


def _memory(parts: _Parts, records: RecordSearch, deletion: Deletion) -> MemoryService:
    return MemoryService(
        database=parts.storage.database,
        opener=parts.opener,
        records=records,
        deletion=deletion,
    )


def _deletion(parts: _Parts, records: RecordSearch) -> Deletion:
    return Deletion(
        database=parts.storage.database,
        ledger=parts.storage.ledger,
        records=records,
        eraser=parts.eraser,
        waits=parts.finder.waits,
    )


def _reviser(parts: _Parts) -> Reviser:
    storage = parts.storage
    return Reviser(
        database=storage.database,
        ledger=storage.ledger,
        opener=parts.opener,
        writer=parts.writer,
        eraser=parts.eraser,
    )


def _state_changer(parts: _Parts) -> StateChanger:
    return StateChanger(
        database=parts.storage.database,
        ledger=parts.storage.ledger,
        eraser=parts.eraser,
    )


def _manual(parts: _Parts, resident: MemoryIndex) -> Manual:
    return Manual(
        database=parts.storage.database,
        namespaces=parts.storage.namespaces,
        writer=parts.writer,
        resident=resident,
        embedder=parts.embedder,
    )


def _recaller(parts: _Parts, embedders: Embedders, resident: MemoryIndex) -> RecallService:
    storage = parts.storage
    return RecallService(
        database=storage.database,
        opener=parts.opener,
        namespaces=storage.namespaces,
        embedder=QueryEmbedder(database=storage.database, embedders=embedders),
        resident=resident,
    )


def _answerer(parts: _Parts, recaller: RecallService, settings: Settings) -> Answerer:
    within_s = deadline_of_looks(settings.request_timeout_s, settings.llm_timeout_s)
    return Answerer(
        recaller=recaller,
        deep_recaller=_deep_recaller(parts, recaller, within_s=within_s),
        model=parts.language_model,
    )


def _deep_recaller(parts: _Parts, recaller: RecallService, *, within_s: float) -> DeepRecaller:
    return DeepRecaller(
        recaller=recaller,
        model=parts.language_model,
        accounts=parts.storage.accounts,
        custody=parts.storage.custody,
        within_s=within_s,
    )


def _analysis(parts: _Parts, recaller: RecallService, *, request_timeout_s: float) -> Analysis:
    storage, language_model = parts.storage, parts.language_model
    rules = SentenceExtractor()
    extractor: Extractor = rules
    patient: Extractor = rules
    if language_model is not None:
        extractor = LlmExtractor(model=language_model)
        patient = LlmExtractor(model=language_model, patient=True)
    known = RelatedMemories(
        recaller=recaller,
        opener=parts.opener,
        database=storage.database,
        namespaces=storage.namespaces,
    )
    episodes = SealedEpisodes(
        database=storage.database,
        blobs=storage.blobs,
        namespaces=storage.namespaces,
        clock=parts.clock,
    )
    facts = EpisodeFacts(
        episodes=episodes,
        opener=parts.opener,
        intake=parts.intake,
        writer=parts.writer,
        database=storage.database,
    )
    return Analysis(
        facts=facts,
        known=known,
        episodes=episodes,
        extractors=Extractors(extractor, patient, rules, language_model),
        accounts=storage.accounts,
        request_timeout_s=request_timeout_s,
    )


def _consolidator(parts: _Parts, planner: Planner) -> Consolidator:
    storage = parts.storage
    return Consolidator(
        planner=planner,
        deriver=Deriver(
            planner=planner,
            database=storage.database,
            writer=parts.writer,
            summariser=Summariser(model=parts.language_model),
            finder=ProcedureFinder(model=parts.language_model),
            clock=parts.clock,
        ),
        database=storage.database,
        ledger=storage.ledger,
        accounts=storage.accounts,
        clock=parts.clock,
    )


def _runs(parts: _Parts) -> Runs:
    return Runs(
        database=parts.storage.database,
        ledger=parts.storage.ledger,
        namespaces=parts.storage.namespaces,
        clock=parts.clock,
    )


def _resealer(parts: _Parts) -> Resealer:
    return Resealer(
        database=parts.storage.database,
        blobs=parts.storage.blobs,
        ledger=parts.storage.ledger,
        namespaces=parts.storage.namespaces,
    )


def _rotations(parts: _Parts) -> Rotations:
    storage = parts.storage
    return Rotations(
        accounts=storage.accounts,
        granting=storage.granting,
        custody=storage.custody,
        needs=parts.finder.needs,
        progress=RotationProgress(
            database=storage.database,
            blobs=storage.blobs,
            accounts=storage.accounts,
            custody=storage.custody,
        ),
        clock=parts.clock,
    )


def _restore(parts: _Parts) -> Restore:
    storage = parts.storage
    return Restore(
        database=storage.database,
        ledger=storage.ledger,
        namespaces=storage.namespaces,
        writer=parts.writer,
        finder=parts.finder,
        clock=parts.clock,
    )


def _collector(parts: _Parts) -> Collector:
    storage = parts.storage
    return Collector(
        database=storage.database,
        blobs=storage.blobs,
        replay=replay_on(storage, parts.clock),
        relayers=storage.relayers,
        clock=parts.clock,
    )


def _importer(parts: _Parts, *, storage_bytes_max: int) -> Importer:
    storage, embedder = parts.storage, parts.embedder
    return Importer(
        grants=GrantImporter(
            needs=parts.finder.needs,
            accounts=storage.accounts,
            granting=storage.granting,
            clock=parts.clock,
        ),
        accounts=storage.accounts,
        namespaces=storage.namespaces,
        ledger=storage.ledger,
        rows=RowImporter(
            database=storage.database,
            ledger=storage.ledger,
            embedding_model=None if embedder is None else embedder.model_id,
            storage_bytes_max=storage_bytes_max,
        ),
        clock=parts.clock,
    )
