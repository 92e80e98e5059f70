/**
 * Reads an archive to its end, and brings it to another relayer.
 *
 * - A file is believed after it was read to its end once: before that nothing of it is sent or shown.
 * - It may be larger than memory: only ids of what changed or was erased are held.
 * - Its receipts are followed, too: what they say was signed by the relayer that it comes from.
 *
 * Source: SPEC.md §17.
 */

import { type Bytes, fromBase64, fromUtf8, sameBytes, toHex } from "../bytes.ts";
import type { Client } from "../client.ts";
import type { Ending, Schemas } from "../description.ts";
import {
  BadRequest,
  Conflict,
  Invalid,
  NotAuthenticated,
  NotGranted,
  ServerError,
  TooLarge,
  UntrustedGrant,
  UntrustedRelayer,
} from "../errors.ts";
import {
  ArchiveReader,
  type ArchiveHeader,
  type ArchiveRecord,
  type ByteSource,
  ChunkKey,
  openArchiveBox,
  readRecords,
} from "../sealed/archive.ts";
import { blobId } from "../sealed/envelope.ts";
import { writeJson } from "../sealed/json.ts";
import { accountIdOf, type Identity } from "../sealed/keys.ts";
import { type Keyring, Ledger } from "../sealed/ledger.ts";
import { integer, listOf, textOf } from "../sealed/objects.ts";
import type { Op, Receipt } from "../sealed/receipts.ts";
import { parseList } from "../session.ts";
import { asRow, checkRecord, Evidence, Losses, memoryOf, namesOf, type Row } from "./contents.ts";

const PAGE_ITEMS_MAX = 100;
const PAGE_BYTES = 1_500_000; // of a request's 2 MiB; a larger row goes alone
const ROW_BYTES_MAX = 7_500_000; // of the 8 MiB that an import takes
const WHOLE_AT_ONCE = 200; // memories with all their revisions, held in memory together
const IMPORTING: readonly Op[] = ["import", "state", "forget", "grant", "revoke"];

/** A file: a `Blob`, or what gives its bytes anew from the beginning at each call. */
export type ArchiveSource = Blob | (() => ByteSource);

/** What became of rows: how many were `imported`, `unchanged`, `refused`, `lost` … */
export type ImportTally = Readonly<Record<string, number>>;

/** Whom to tell of an import, and the relayer's token for newcomers. */
export interface ImportOptions extends Ending {
  readonly token?: string;
  /** Is called with the number of rows so far. */
  readonly onProgress?: (rows: number) => void;
}

/** An archive that was read to its end and holds. */
export interface Archive {
  readonly header: ArchiveHeader;
  readonly account: ArchiveRecord;
  readonly grants: readonly ArchiveRecord[];
  readonly ledger: Ledger;
  readonly namespaces: readonly ArchiveRecord[];
  readonly tombstones: readonly ArchiveRecord[];
  readonly counts: Readonly<Record<string, number>>;
  /** How many rows have no blob, and cannot be brought anywhere. */
  readonly lost: number;
  /** Yields the memories, earlier revisions and turns that count, in the archive's order. */
  rows(): AsyncGenerator<Row, void, undefined>;
}

/**
 * Returns an archive of this account after reading it to its end.
 *
 * @throws {Invalid} it is altered, cut, of another account, for other keys, or not made by an owner.
 */
export async function openArchive(
  source: ArchiveSource,
  identity: Identity,
  account: Uint8Array,
): Promise<Archive> {
  const header = await new ArchiveReader(bytesOf(source)).readHeader();
  if (!sameBytes(header.account, account)) {
    throw new Invalid("account", "The archive is another account's.");
  }
  const chunks = new ChunkKey(header.archive, openArchiveBox(header, identity));
  const found = await readWhole(source, header, chunks);
  return {
    ...found,
    header,
    async *rows() {
      let number = -1;
      for await (const record of recordsOf(source, chunks)) {
        number++;
        const row = asRow(record);
        if (row === null || row.blob === null) continue;
        const isGone = namesOf(row).some((name) => found.gone.has(name));
        if (!isGone && (found.latest.get(row.id) ?? number) === number) yield row;
      }
    },
  };
}

async function readWhole(source: ArchiveSource, header: ArchiveHeader, chunks: ChunkKey) {
  const evidence = new Evidence(header.account, header.relayer, toHex(header.relayer));
  const kept = new Map<string, ArchiveRecord[]>();
  const [latest, gone, losses] = [new Map<string, number>(), new Set<string>(), new Losses()];
  const counts: Record<string, number> = {};
  let last: ArchiveRecord | null = null;
  let number = 0;
  for await (const record of recordsOf(source, chunks)) {
    last = record;
    const kind = record.record;
    if (kind !== "mark" && kind !== "end") counts[kind] = (counts[kind] ?? 0) + 1;
    const receipt = follow(evidence, record);
    const began = kept.get("account")?.[0]?.["receipt_seq"] as number | undefined;
    if (receipt !== null && receipt.seq > (began ?? 0)) noteTakenTurns(receipt, gone);
    losses.take(record);
    const row = asRow(record);
    if (row !== null) {
      checkName(row);
      if (record["again"]) latest.set(row.id, number);
    } else if (kind !== "receipt" && kind !== "mark" && kind !== "end") {
      const known = kept.get(kind) ?? [];
      known.push(record);
      kept.set(kind, known);
    }
    number++;
  }
  const account = kept.get("account") ?? [];
  if (last?.record !== "end" || account.length !== 1 || !isSame(last["counts"], counts)) {
    throw new Invalid("record", "The archive is not whole.");
  }
  evidence.checkEnd();
  const [grants, tombstones] = [kept.get("grant") ?? [], kept.get("tombstone") ?? []];
  for (const stone of tombstones) {
    gone.add(textOf(stone["id"]));
    for (const name of listOf(stone["blob_ids"])) gone.add(textOf(name));
  }
  const ledger = ledgerOf(header, grants);
  const namespaces = kept.get("namespace") ?? [];
  const rest = { latest, gone, counts, lost: losses.size };
  return { account: account[0]!, grants, ledger, namespaces, tombstones, ...rest };
}

function isSame(told: unknown, counts: Readonly<Record<string, number>>): boolean {
  const sorted = (value: object): string => JSON.stringify(Object.entries(value).sort());
  return typeof told === "object" && told !== null && sorted(told) === sorted(counts);
}

function follow(evidence: Evidence, record: ArchiveRecord): Receipt | null {
  try {
    return evidence.take(record);
  } catch (error) {
    if (!(error instanceof UntrustedRelayer)) throw error;
    const told = `The archive's receipts do not hold: ${error.message}`;
    throw new Invalid(error.code, told, { cause: error });
  }
}

/** Notes turns that are gone since their facts were taken: taken once more where they arrive, they
 * would bring back what was forgotten. */
function noteTakenTurns(receipt: Receipt, gone: Set<string>): void {
  if (receipt.op !== "analyze") return;
  for (const { id, revision, blobId: blob } of receipt.items) {
    if (revision === 0) gone.add(id).add(blob);
  }
}

function checkName(row: Row): void {
  if (row.blob !== null && blobId(fromBase64(row.blob, "blob")) !== row.blob_id) {
    throw new Invalid("name", "A blob of the archive does not have the name that its row says.");
  }
}

/** Returns the account's grants, which must say that the archive's signer owned it. */
function ledgerOf(header: ArchiveHeader, grants: readonly ArchiveRecord[]): Ledger {
  const objects = grants.map((record) => {
    const object = fromBase64(record["object"], "grant");
    return { kind: isGrant(object) ? "grant" : "revoke", object };
  });
  const succession = grants
    .filter((record) => record["succession"] !== null)
    .map((record) => fromBase64(record["succession"], "object"));
  const ledger = Ledger.of(header.account, objects, succession);
  const held = ledger.listGrantsTo(header.signer, header.createdMs);
  if (!ledger.isComplete || held.every((grant) => grant.role !== "owner")) {
    throw new UntrustedGrant("signer", "The archive was not made by an owner of the account.");
  }
  return ledger;
}

function isGrant(object: Bytes): boolean {
  return fromUtf8(object.slice(0, -64)).includes('"grant":');
}

async function* recordsOf(
  source: ArchiveSource,
  chunks: ChunkKey,
): AsyncGenerator<ArchiveRecord, void, undefined> {
  const reader = new ArchiveReader(bytesOf(source));
  await reader.readHeader();
  for await (const record of readRecords(reader.openChunks(chunks))) {
    checkRecord(record);
    yield record;
  }
}

function bytesOf(source: ArchiveSource): ByteSource {
  return typeof source === "function" ? source() : piecesOf(source);
}

/** Yields the bytes of a blob; not every browser iterates a stream. */
async function* piecesOf(blob: Blob): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = blob.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/**
 * Brings an archive to the client's relayer; returns how many rows fared how, the `lost` too.
 *
 * Doing it again brings what is missing and changes nothing else.
 *
 * @throws {NotGranted} the account is not there yet, and this key is not its founder's.
 */
export async function importArchive(
  client: Client,
  archive: Archive,
  options: ImportOptions = {},
): Promise<ImportTally> {
  const { signal, onProgress } = options;
  const { identity } = client.session;
  if (sameBytes(accountIdOf(identity.publicKey), archive.header.account)) {
    await foundAccount(client, archive, options);
  }
  try {
    await importPage(client, { account: bare(archive.account) }, signal);
  } catch (error) {
    if (!(error instanceof NotAuthenticated)) throw error;
    throw new NotGranted(
      "The account is not there, or not with this key: bring it with its founder's key first.",
    );
  }
  const keyring = archive.ledger.keyring(identity, archive.header.createdMs);
  const namespaces = archive.namespaces
    .map((record) => ({ ...record, keys: ownKeys(keyring, record) }))
    .filter((record) => record.keys.length > 0);
  for (const grants of pages(archive.grants)) await importPage(client, { grants }, signal);
  for (const page of pages(namespaces)) await importPage(client, { namespaces: page }, signal);
  for (const stones of pages(archive.tombstones)) await bringTombstones(client, stones, signal);

  const tally = new Map<string, number>();
  const differing = new Map<string, string>(); // a row → the memory that it is a revision of
  let done = 0;
  for await (const batch of batches(memoriesFirst(archive))) {
    const outcomes = await bring(client, batch, signal);
    for (const row of batch) {
      const status = outcomes.get(row.id)!;
      add(tally, status, 1);
      if (row.record === "memory" && status === "differs") differing.set(row.id, memoryOf(row));
    }
    onProgress?.((done += batch.length));
  }
  const settled = await bringWhole(client, archive, differing, signal);
  add(tally, "differs", -settled.size);
  for (const status of settled.values()) add(tally, status, 1);
  add(tally, "lost", archive.lost);
  return Object.fromEntries([...tally].filter(([, count]) => count > 0));
}

function add(tally: Map<string, number>, name: string, count: number): void {
  tally.set(name, (tally.get(name) ?? 0) + count);
}

async function foundAccount(
  client: Client,
  archive: Archive,
  options: ImportOptions,
): Promise<void> {
  const { token, signal } = options;
  const grants = [archive.grants[0]?.["object"]];
  const body = { grants, label: textOf(archive.account["label"]), token };
  const call = { method: "POST", path: "/v1/accounts", body, namesRelayer: true } as const;
  try {
    const answer = await client.session.call<"createAccount">({
      ...call,
      isRepeatable: false,
      signal,
    });
    if (answer.account_id !== client.accountId) {
      throw new UntrustedRelayer("account", "The relayer founded another account than asked.");
    }
    await noteReceipts(client, answer.receipts);
  } catch (error) {
    if (!(error instanceof Conflict) || error.code !== "account.exists") throw error;
  }
}

/** Sends a page; checks that receipts name each row that the relayer says it took in. */
async function importPage(
  client: Client,
  page: Readonly<Record<string, unknown>>,
  signal: AbortSignal | undefined,
): Promise<Schemas["ImportAnswer"]> {
  const answer = await client.session.call<"importAccount">({
    method: "POST",
    path: "/v1/import",
    body: page,
    namesRelayer: true,
    signal,
  });
  const vouched = await noteReceipts(client, answer.receipts);
  const sent = [...((page["memories"] ?? []) as Row[]), ...((page["episodes"] ?? []) as Row[])];
  const rows = new Map(sent.map((row) => [row.id, row]));
  for (const one of parseList(answer.results, "results")) {
    const row = rows.get(one.id);
    const isNamed = row !== undefined && vouched.has(nameOf(row));
    if (one.status === "imported" && !isNamed) {
      throw new UntrustedRelayer("receipt", "A row that was taken in came without its receipt.");
    }
  }
  if (page["grants"]) client.session.forgetGrants();
  return answer;
}

/** Verifies the receipts of an import; returns what they say was taken in. */
async function noteReceipts(
  client: Client,
  receipts: readonly string[],
): Promise<ReadonlySet<string>> {
  const vouched = new Set<string>();
  for (const text of parseList(receipts, "receipts")) {
    const receipt = await client.session.noteReceipt(text, { op: IMPORTING });
    if (receipt.op !== "import") continue;
    for (const item of receipt.items) vouched.add(`${item.id} ${item.revision} ${item.blobId}`);
  }
  return vouched;
}

function nameOf(row: Row): string {
  return `${memoryOf(row)} ${row.revision ?? 1} ${row.blob_id}`;
}

/** Says what is erased; to a relayer from before turns were told to be `taken`, without these. */
async function bringTombstones(
  client: Client,
  stones: readonly Readonly<Record<string, unknown>>[],
  signal: AbortSignal | undefined,
): Promise<void> {
  try {
    await importPage(client, { tombstones: stones }, signal);
  } catch (error) {
    const erased = stones.filter((stone) => !stone["taken"]);
    const isOlder = error instanceof BadRequest && error.code === "request.invalid";
    if (!isOlder || erased.length === stones.length) throw error;
    await importPage(client, { tombstones: erased }, signal);
  }
}

/**
 * Returns the ids of a namespace's keys that this key has, or has no key to compare with: another
 * one, invented by the former relayer, would shut the namespace at the next one for good.
 */
function ownKeys(keyring: Keyring, namespace: ArchiveRecord): unknown[] {
  const own = new Map<number, string>();
  try {
    for (const key of keyring.namespaceKeys(textOf(namespace["name"]))) {
      own.set(key.epoch, toHex(key.keyId));
    }
  } catch (error) {
    if (!(error instanceof NotGranted)) throw error;
  }
  return listOf(namespace["keys"]).filter((key) => {
    const { epoch, key_id: keyId } = key as { epoch?: unknown; key_id?: unknown };
    return (own.get(integer(epoch)) ?? keyId) === keyId;
  });
}

/** Yields the rows that count, earlier revisions last: none is taken in without its memory. */
async function* memoriesFirst(archive: Archive): AsyncGenerator<Row, void, undefined> {
  for await (const row of archive.rows()) if (!row.revision_of) yield row;
  for await (const row of archive.rows()) if (row.revision_of) yield row;
}

/** Sends what differs once more, each memory with its revisions: a newer revision counts where the
 * one that is there comes along with it. */
async function bringWhole(
  client: Client,
  archive: Archive,
  differing: ReadonlyMap<string, string>,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, string>> {
  const settled = new Map<string, string>();
  const memories = [...new Set(differing.values())];
  for (let at = 0; at < memories.length; at += WHOLE_AT_ONCE) {
    const groups = new Map<string, Row[]>();
    for (const memory of memories.slice(at, at + WHOLE_AT_ONCE)) groups.set(memory, []);
    for await (const row of archive.rows()) groups.get(memoryOf(row))?.push(row);
    for (const rows of groups.values()) {
      for (const part of partsOf(rows)) {
        for (const [id, status] of await bring(client, part, signal)) {
          if (differing.has(id) && settled.get(id) !== "imported") settled.set(id, status);
        }
      }
    }
  }
  return settled;
}

/** Yields requests that have a memory and some of its earlier revisions, from the oldest one on. */
function* partsOf(rows: readonly Row[]): Generator<readonly Row[], void, undefined> {
  const order = (row: Row): number => (row.revision_of ? (row.revision ?? 0) : -1);
  const [memory, ...earlier] = [...rows].sort((left, right) => order(left) - order(right));
  let part = [memory!];
  let held = sizeOf(memory!);
  for (const row of earlier) {
    const isFull = part.length === PAGE_ITEMS_MAX || held + sizeOf(row) > ROW_BYTES_MAX;
    if (isFull && part.length > 1) {
      yield part;
      part = [memory!];
      held = sizeOf(memory!);
    }
    part.push(row);
    held += sizeOf(row);
  }
  yield part;
}

/** Sends rows; returns what became of each, by its id. One that no relayer reads is `refused`. */
async function bring(
  client: Client,
  batch: readonly Row[],
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, string>> {
  try {
    return await sendRows(client, batch, signal);
  } catch (error) {
    const isRefusal = error instanceof BadRequest || error instanceof TooLarge;
    if (!isRefusal || !(error as ServerError).code.startsWith("request.")) throw error;
  }
  if (batch.length === 1) return new Map([[batch[0]!.id, "refused"]]);
  const half = Math.floor(batch.length / 2);
  const first = await bring(client, batch.slice(0, half), signal);
  return new Map([...first, ...(await bring(client, batch.slice(half), signal))]);
}

async function sendRows(
  client: Client,
  batch: readonly Row[],
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, string>> {
  const memories = batch.filter((row) => row.record === "memory").map(bare);
  const episodes = batch.filter((row) => row.record === "episode").map(bare);
  const answer = await importPage(client, { memories, episodes }, signal);
  const outcomes = new Map(answer.results.map((one) => [one.id as string, one.status as string]));
  if (outcomes.size !== batch.length || batch.some((row) => !outcomes.has(row.id))) {
    throw new UntrustedRelayer("results", "The relayer answered for other rows than it got.");
  }
  return outcomes;
}

/** Yields rows in requests of their size; a row too large goes without its index. */
async function* batches(rows: AsyncIterable<Row>): AsyncGenerator<readonly Row[], void, undefined> {
  let [batch, held]: [Row[], number] = [[], 0];
  for await (const whole of rows) {
    const isLarge = whole.record === "memory" && sizeOf(whole) > ROW_BYTES_MAX;
    // Vectors and words are made again where it arrives, as soon as somebody lends its key.
    const row: Row = isLarge ? { ...whole, vectors: [], postings: null } : whole;
    const size = sizeOf(row);
    if (batch.length > 0 && (held + size > PAGE_BYTES || batch.length === PAGE_ITEMS_MAX)) {
      yield batch;
      [batch, held] = [[], 0];
    }
    batch.push(row);
    held += size;
  }
  if (batch.length > 0) yield batch;
}

function sizeOf(row: Row): number {
  return writeJson(row).length;
}

/** Returns a record of an archive as a request has it. */
function bare(given: ArchiveRecord): Readonly<Record<string, unknown>> {
  const { record: _record, again: _again, ...members } = given;
  return members;
}

function* pages(
  records: readonly ArchiveRecord[],
): Generator<readonly Readonly<Record<string, unknown>>[], void, undefined> {
  for (let at = 0; at < records.length; at += PAGE_ITEMS_MAX) {
    yield records.slice(at, at + PAGE_ITEMS_MAX).map(bare);
  }
}
