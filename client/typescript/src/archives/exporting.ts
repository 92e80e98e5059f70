/**
 * Writes an account into an archive, page by page, from a relayer that goes on meanwhile.
 *
 * - What changed or came during the export, which the receipts since its beginning name, is read
 *   again; what was erased is read last.
 * - None of it sends a namespace's key: what moves stays sealed.
 *
 * Source: SPEC.md §17.
 */

import { type Bytes, concat, toHex } from "../bytes.ts";
import type { Client } from "../client.ts";
import type { Ending, QueryOf } from "../description.ts";
import { BadRequest, Invalid, malformedAnswer, NotGranted, UntrustedRelayer } from "../errors.ts";
import { LONG_ANSWER_BYTES_MAX } from "../exchange.ts";
import { onward } from "../operations/listing.ts";
import {
  type ArchiveRecord,
  ChunkKey,
  CHUNK_BYTES_MAX,
  writeArchiveHead,
  writeRecord,
} from "../sealed/archive.ts";
import { KEY_BYTES, randomBytes, randomUuid } from "../sealed/primitives.ts";
import type { Receipt } from "../sealed/receipts.ts";
import { parseList } from "../session.ts";
import { asRow, checkRecord, Evidence, Losses, PromisedObjects } from "./contents.ts";

type Part = QueryOf<"exportAccount">["part"];

const KINDS: Readonly<Record<Part, string>> = {
  account: "account",
  memories: "memory",
  episodes: "episode",
  receipts: "receipt",
  grants: "grant",
  namespaces: "namespace",
  tombstones: "tombstone",
};
// Grants and namespaces come behind the memories, whose keys they name; what was erased, last.
const PAGED: readonly Part[] = ["account", "memories", "episodes", "receipts"];
const AT_THE_END: readonly Part[] = ["grants", "namespaces", "tombstones"];
const UNCHANGING: readonly string[] = ["grant", "revoke", "forget", "expire", "close"];
const IDS_AT_ONCE = 10;

/** What was written. */
export interface ExportResult {
  /** How many records of each kind it has. */
  readonly counts: Readonly<Record<string, number>>;
  /** How many rows the relayer has no blob for. */
  readonly lost: number;
  /** The ids of what receipts promise, and the relayer neither gave nor says is erased. */
  readonly missing: readonly string[];
}

/** Whom to tell of an export. */
export interface ExportOptions extends Ending {
  /** Is called with the number of memories so far. */
  readonly onProgress?: (memories: number) => void;
}

/**
 * Yields the bytes of an archive of the whole account; returns what is in it.
 *
 * What was yielded is an archive only once this has returned.
 *
 * @throws {NotGranted} this key does not own the account.
 * @throws {UntrustedRelayer} the relayer does not stand for the history that it gave, or a receipt
 *   in it does not hold.
 */
export async function* exportArchive(
  client: Client,
  options: ExportOptions = {},
): AsyncGenerator<Bytes, ExportResult, undefined> {
  const { signal } = options;
  const { session } = client;
  const relayer = await session.relayerKey(signal);
  const chunks = new ChunkKey(randomUuid(), randomBytes(KEY_BYTES));
  yield await beginArchive(client, relayer, chunks, signal);
  const state = new Standing(new Evidence(session.account, relayer, toHex(relayer)));
  const sealer = new Sealer(chunks);

  async function* put(
    part: Part,
    query: { cursor?: string; ids?: readonly string[] } = {},
  ): AsyncGenerator<Bytes, ReadonlySet<string>, undefined> {
    const ids = new Set<string>();
    for await (const record of readPart(client, part, query, signal)) {
      const again = query.ids ? { again: true } : {};
      const entry = { record: KINDS[part], ...record, ...again };
      state.take(entry, part);
      if ("id" in record) ids.add(record["id"] as string);
      yield* sealer.add(entry);
    }
    options.onProgress?.(state.counts.get("memory") ?? 0);
    return ids;
  }

  for (const part of PAGED) yield* put(part);
  for (let before = -1; state.receiptSeq !== before;) {
    const changed = state.listChanged();
    for (let at = 0; at < changed.length; at += IDS_AT_ONCE) {
      const ids = changed.slice(at, at + IDS_AT_ONCE);
      const found = yield* put("memories", { ids });
      const turns = ids.filter((id) => !found.has(id));
      try {
        if (turns.length > 0) yield* put("episodes", { ids: turns });
      } catch (error) {
        // A relayer from before it gave turns by id: what then is missing, is named.
        if (!(error instanceof BadRequest) || error.code !== "request.invalid") throw error;
      }
    }
    before = state.receiptSeq;
    yield* put("receipts", { cursor: String(before) });
  }
  for (const part of AT_THE_END) yield* put(part);
  state.evidence.checkEnd();
  if (state.newest !== null) await client.checkNewest(state.newest, { signal });
  const counts = Object.fromEntries([...state.counts].sort());
  yield* sealer.finish({ record: "end", counts });
  return { counts, lost: state.losses.size, missing: state.promised.listMissing(state.losses) };
}

/** Returns the beginning of an archive that every owner of the account can open. */
async function beginArchive(
  client: Client,
  relayer: Uint8Array,
  chunks: ChunkKey,
  signal: AbortSignal | undefined,
): Promise<Bytes> {
  const { session } = client;
  const ledger = await client.grants({ signal });
  const createdMs = Date.now();
  const owners = ledger
    .holders(createdMs)
    .filter((holder) => holder.grants.some((grant) => grant.role === "owner"))
    .map((holder) => holder.publicKey)
    .sort((left, right) => (toHex(left) < toHex(right) ? -1 : 1));
  if (!owners.some((key) => toHex(key) === client.publicKey)) {
    throw new NotGranted("Only an owner's key takes the whole account along.");
  }
  const { archive, key } = chunks;
  const { account } = session;
  return writeArchiveHead(session.identity, { archive, account, relayer, createdMs, owners, key });
}

/** Yields the records of a part of the account, page by page. */
async function* readPart(
  client: Client,
  part: Part,
  query: { cursor?: string; ids?: readonly string[] },
  signal: AbortSignal | undefined,
): AsyncGenerator<Record<string, unknown>, void, undefined> {
  let { cursor } = query;
  do {
    const page = await client.session.call<"exportAccount">({
      method: "GET",
      path: "/v1/export",
      query: { part, cursor, ids: query.ids },
      answerBytesMax: LONG_ANSWER_BYTES_MAX,
      signal,
    });
    for (const record of parseList(page.records, "records")) {
      if ("record" in record || "again" in record) throw malformedAnswer(`a record of ${part}`);
      yield record as Record<string, unknown>;
    }
    cursor = onward(cursor, page.next);
  } while (cursor !== undefined);
}

/** What is in an archive that is being written, and what receipts named since it began. */
class Standing {
  readonly evidence: Evidence;
  readonly losses = new Losses();
  readonly promised = new PromisedObjects();
  readonly counts = new Map<string, number>();
  newest: Receipt | null = null;
  #beganSeq = 0;
  #beganMemorySeq = 0;
  #changed = new Set<string>();
  readonly #fresh = new Set<string>(); // stored since, and in the file

  constructor(evidence: Evidence) {
    this.evidence = evidence;
  }

  get receiptSeq(): number {
    return this.newest?.seq ?? 0;
  }

  /** Notes a record that is in the file. */
  take(record: ArchiveRecord, part: Part): void {
    try {
      checkRecord(record);
      this.#note(record, this.evidence.take(record));
    } catch (error) {
      if (error instanceof UntrustedRelayer || !(error instanceof Invalid)) throw error;
      throw malformedAnswer(`a record of ${part}`);
    }
  }

  #note(record: ArchiveRecord, receipt: Receipt | null): void {
    this.counts.set(record.record, (this.counts.get(record.record) ?? 0) + 1);
    this.losses.take(record);
    if (record.record === "account") {
      this.#beganSeq = record["receipt_seq"] as number;
      this.#beganMemorySeq = record["memory_seq"] as number;
    }
    const row = asRow(record);
    if (row !== null) {
      this.promised.hold(row);
      const isNew = row.record === "memory" && (row["seq"] as number) > this.#beganMemorySeq;
      if (isNew && row.blob !== null) this.#fresh.add(row.id);
    }
    if (receipt === null) return;
    this.promised.add(receipt);
    this.newest = receipt;
    if (receipt.seq <= this.#beganSeq || UNCHANGING.includes(receipt.op)) return;
    const isStoring = receipt.op === "remember" || receipt.op === "analyze";
    for (const { id } of receipt.items) {
      if (!(isStoring && this.#fresh.has(id))) this.#changed.add(id);
    }
  }

  /** Returns the memories and turns that are otherwise than the file has them; each is told once. */
  listChanged(): string[] {
    const changed = [...this.#changed];
    this.#changed = new Set();
    return changed;
  }
}

/** Seals records into chunks. */
class Sealer {
  readonly #chunks: ChunkKey;
  #index = 0;
  #parts: Uint8Array[] = [];
  #held = 0;

  constructor(chunks: ChunkKey) {
    this.#chunks = chunks;
  }

  /** Yields the chunks that a record fills. */
  *add(record: ArchiveRecord): Generator<Bytes, void, undefined> {
    const data = writeRecord(record);
    this.#parts.push(data);
    this.#held += data.length;
    if (this.#held <= CHUNK_BYTES_MAX) return;
    let rest: Bytes = concat(...this.#parts);
    // The last one is sealed as such, so something is always kept back.
    for (; rest.length > CHUNK_BYTES_MAX; rest = rest.slice(CHUNK_BYTES_MAX)) {
      yield this.#seal(rest.subarray(0, CHUNK_BYTES_MAX), false);
    }
    this.#parts = [rest];
    this.#held = rest.length;
  }

  /** Yields the last chunks, with this record at the end. */
  *finish(record: ArchiveRecord): Generator<Bytes, void, undefined> {
    yield* this.add(record);
    yield this.#seal(concat(...this.#parts), true);
  }

  #seal(plaintext: Uint8Array, isLast: boolean): Bytes {
    return this.#chunks.seal(this.#index++, plaintext, isLast);
  }
}
