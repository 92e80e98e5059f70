/**
 * Checks a relayer from outside: its receipts, its grants, and every blob against both.
 *
 * Not here: what must hold (`promises.ts`, `judging.ts`), the formats (`../sealed/`).
 *
 * - Everything is fetched anew, and nothing that the relayer says of itself counts as checked.
 * - An account that changes meanwhile is looked at again, as far as something seemed wrong.
 *
 * Source: SPEC.md §15.
 */

import { fromUtf8, sameBytes, toHex } from "../bytes.ts";
import type { Client } from "../client.ts";
import type { Ending } from "../description.ts";
import {
  Invalid,
  malformedAnswer,
  NotAllowed,
  NotGranted,
  ServerError,
  UntrustedGrant,
  UntrustedRelayer,
} from "../errors.ts";
import { LONG_ANSWER_BYTES_MAX, makeBreak } from "../exchange.ts";
import { onward } from "../operations/listing.ts";
import { blobId, openEnvelope } from "../sealed/envelope.ts";
import type { JsonObject } from "../sealed/json.ts";
import { accountText } from "../sealed/keys.ts";
import { Keyring } from "../sealed/ledger.ts";
import { normaliseNamespace } from "../sealed/names.ts";
import { integer, readObject, uuidText } from "../sealed/objects.ts";
import { type Checkpoint, History, readCheckpoint, signerOf } from "../sealed/receipts.ts";
import { type Call, parseBytes, parseInteger, parseList } from "../session.ts";
import {
  type Item,
  judgeBlob,
  judgeCheckpoints,
  judgeGrants,
  judgeName,
  judgeNewest,
  judgeState,
  Landmarks,
  placeOf,
  type Stored,
  TYPES,
} from "./judging.ts";
import { type Finding, makeFinding, type PromisedState, Promises } from "./promises.ts";

export type { Finding } from "./promises.ts";

const PAGE = 200;
const BLOBS_AT_ONCE = 100;
const ITEMS_AT_ONCE = 50; // each may have a `state` object beside its own
const BLOB_BYTES_AT_ONCE = 4 * 2 ** 20;
const PASSES_MAX = 4;
const CORRUPTED = "store.corrupted"; // the relayer's own word for grants that it no longer believes

/** What is looked at beside the whole history. */
export interface VerifyOptions extends Ending {
  /** Looks only at what is stored in these. */
  readonly namespaces?: readonly string[];
  /** Signed checkpoints that must lie on the chain, such as `Checkpoint.signed`. */
  readonly checkpoints?: readonly Uint8Array[];
  /** A signed checkpoint: the chain is followed from there, instead of from its beginning. */
  readonly since?: Uint8Array;
  /** Opens every blob with the keys at hand. */
  readonly openAll?: boolean;
  /** Is told how many `receipts` or `blobs` were checked. */
  readonly onProgress?: (what: "receipts" | "blobs", number: number) => void;
}

/**
 * What was checked, and what does not hold.
 *
 * `unchecked` names what this key may not see; `unproven` counts revisions that are stored and whose
 * receipts lie before what could be followed.
 */
export interface Verification {
  readonly ok: boolean;
  readonly account_id: string;
  readonly relayer_key: string;
  readonly seq: number;
  readonly head: string;
  readonly receipts: number;
  readonly grants: number;
  readonly blobs: number;
  readonly opened: number;
  readonly unproven: number;
  readonly notes: readonly string[];
  readonly unchecked: readonly string[];
  readonly findings: readonly Finding[];
}

/**
 * Checks the account's whole history and everything stored against it.
 *
 * @throws {UntrustedRelayer} another relayer answers than the pinned one.
 */
export async function verifyAccount(
  client: Client,
  options: VerifyOptions = {},
): Promise<Verification> {
  const { session } = client;
  session.forgetGrants();
  const relayers = await session.relayers(options.signal);
  const examination = new Examination(client, relayers, options);
  await examination.begin();
  return examination.run();
}

/** One verification under way: what is known, what was counted, what was found. */
class Examination {
  readonly #client: Client;
  readonly #relayers: readonly Uint8Array[];
  readonly #options: VerifyOptions;
  readonly #account: Uint8Array;
  readonly #names: readonly string[] | undefined;
  readonly #start: Checkpoint | undefined;
  readonly #history: History;
  readonly #promises: Promises;
  readonly #landmarks = new Landmarks();
  readonly #findings: Finding[] = [];
  readonly #notes: string[] = [];
  readonly #rest: () => Promise<void>;
  #keyring: Keyring;
  #isWhole = false; // whether this key sees receipts and grants
  #isFollowed = true; // whether the chain is sound as far as it goes
  #isBeginning: boolean;
  #signer: Uint8Array | null = null;
  #counts = { receipts: 0, grants: 0, blobs: 0, opened: 0, unproven: 0 };

  constructor(client: Client, relayers: readonly Uint8Array[], options: VerifyOptions) {
    const { account } = client.session;
    this.#client = client;
    this.#relayers = relayers;
    this.#options = options;
    this.#account = account;
    this.#names = options.namespaces && [...new Set(options.namespaces.map(normaliseNamespace))];
    this.#start = options.since && readCheckpoint(options.since, relayers, account);
    const start = this.#start;
    const from = start && relayers.findIndex((key) => sameBytes(key, start.relayer));
    this.#history = new History(relayers.slice(from ?? 0), account, start);
    this.#promises = new Promises(start);
    this.#isBeginning = start === undefined;
    this.#keyring = new Keyring(account);
    this.#rest = makeBreak(options.signal);
  }

  /** Notes what was seen of the account before, which its history must contain. */
  async begin(): Promise<void> {
    const seen = await this.#client.session.trust();
    this.#landmarks.add(seen.receipt_seq, seen.receipt_head, "this client's newest");
    this.#landmarks.add(seen.checked_seq, seen.checked_head, "checked before");
    const read: Checkpoint[] = [];
    for (const data of this.#options.checkpoints ?? []) {
      try {
        read.push(readCheckpoint(data, this.#relayers, this.#account));
      } catch (error) {
        if (!(error instanceof UntrustedRelayer)) throw error;
        this.#note({ what: "checkpoint", found: error.message });
      }
    }
    for (const { seq, head } of read) this.#landmarks.add(seq, toHex(head), "a checkpoint");
    if (this.#start) this.#findings.push(...this.#landmarks.begin(this.#start));
    this.#findings.push(...judgeCheckpoints(read));
  }

  async run(): Promise<Verification> {
    if (!(await this.#loadKeys())) return this.#conclude(["receipts", "grants", "blobs"]);
    if (this.#isWhole) {
      await this.#follow();
      await this.#checkEnd();
      await this.#checkGrants();
    } else {
      this.#promises.isComplete = this.#isFollowed = false;
    }
    await this.#checkStored();
    if (this.#isWhole) this.#findings.push(...this.#landmarks.listLeft(this.#history.seq));
    return this.#conclude(this.#listUnchecked());
  }

  #note(given: Partial<Finding> & Pick<Finding, "what">): void {
    this.#findings.push(makeFinding(given));
  }

  /** Loads what this key holds; returns whether the relayer still serves it at all. */
  async #loadKeys(): Promise<boolean> {
    const { signal } = this.#options;
    try {
      this.#keyring = await this.#client.session.keyring(signal);
      this.#isWhole = this.#keyring.isWholeAccount;
      return true;
    } catch (error) {
      const isBroken = error instanceof UntrustedGrant || error instanceof UntrustedRelayer;
      if (!isBroken && !isCorrupted(error)) throw error;
      this.#note({ what: "grants", found: isBroken ? error.message : error.reason });
    }
    // Where the grants are broken, it may say at least what this key may see.
    try {
      await this.#client.session.call({ method: "GET", path: "/v1/checkpoint", signal });
      this.#isWhole = true;
    } catch (error) {
      if (isCorrupted(error)) return false;
      if (!(error instanceof NotAllowed)) throw error;
    }
    return true;
  }

  // The chain

  /** Follows the chain to its present end. */
  async #follow(): Promise<void> {
    const { signal, onProgress } = this.#options;
    while (this.#isFollowed) {
      const query = { after: this.#history.seq, limit: PAGE };
      const call: Call = { method: "GET", path: "/v1/receipts", query, signal };
      const page = await this.#client.session.call<"listReceipts">(call);
      const objects = parseList(page.receipts, "receipts");
      for (const text of objects) {
        if (!this.#take(parseBytes(text, "receipt"))) return;
        await this.#rest();
      }
      onProgress?.("receipts", this.#counts.receipts);
      if (objects.length === 0) {
        this.#compareEnd(parseInteger(page.seq, "seq"), page.head);
        return;
      }
    }
  }

  /** Compares where the chain ends with where somebody says that it ends. */
  #compareEnd(seq: number, head: string): void {
    const { seq: reached, head: found } = this.#history;
    if (seq === reached && head === toHex(found)) return;
    const said = { expected: `${seq}, ${head}`, found: `${reached}, ${toHex(found)}` };
    this.#note({ what: "head", seq: reached, ...said });
  }

  /**
   * Checks that the pinned key or an heir of it stands for the chain: anybody can pose as its
   * forerunner, with receipts of their own.
   */
  async #checkEnd(): Promise<void> {
    const { signal } = this.#options;
    const heirs = await this.#client.session.heirs(signal);
    const isOfHeir = (): boolean =>
      this.#signer === null || heirs.some((key) => sameBytes(key, this.#signer!));
    if (!this.#isFollowed || this.#history.seq === 0 || isOfHeir()) return;
    const stands = await this.#client.checkpoint({ signal });
    if (stands.seq > this.#history.seq) await this.#follow();
    if (!isOfHeir()) this.#compareEnd(stands.seq, toHex(stands.head));
  }

  /** Judges the next receipt; returns whether it follows. */
  #take(data: Uint8Array): boolean {
    const due = this.#history.seq + 1;
    let receipt;
    try {
      receipt = this.#history.follow(data);
    } catch (error) {
      if (!(error instanceof UntrustedRelayer)) throw error;
      const expected = "the receipt that follows, signed by the relayer";
      this.#note({ what: "chain", seq: due, expected, found: error.message });
      this.#isFollowed = this.#promises.isComplete = false;
      return false;
    }
    this.#signer = receipt.relayer;
    if (receipt.op === "rebuild") {
      const where = `at ${receipt.seq}: what was before is not proven.`;
      this.#notes.push(`The relayer rebuilt this account ${where}`);
    }
    this.#findings.push(...this.#landmarks.passBy(receipt, this.#isBeginning));
    this.#findings.push(...this.#promises.add(receipt));
    this.#isBeginning = false;
    this.#counts.receipts++;
    return true;
  }

  /** Checks that grants and revocations, which lead to the founder, are those receipts name. */
  async #checkGrants(): Promise<void> {
    // They were not to be had; and others than owners see what concerns them.
    if (!this.#keyring.roles.has("owner")) return;
    const answer = await this.#client.session.call<"listGrants">({
      method: "GET",
      path: "/v1/grants",
      answerBytesMax: LONG_ANSWER_BYTES_MAX,
      signal: this.#options.signal,
    });
    const names = new Map<number, string>();
    for (const entry of parseList(answer.grants, "grants")) {
      names.set(parseInteger(entry.serial, "serial"), blobId(parseBytes(entry.object, "grant")));
    }
    this.#counts.grants = names.size;
    if (this.#isFollowed) this.#findings.push(...judgeGrants(this.#promises, names));
  }

  // What is stored

  /** Judges everything stored; again, while the account changes and something seems wrong. */
  async #checkStored(): Promise<void> {
    let doubtful: Set<string> | null = null;
    let found: Finding[] = [];
    for (let pass = 0; pass < PASSES_MAX; pass++) {
      const before = this.#history.seq;
      found = await this.#look(doubtful);
      if (this.#isWhole) await this.#follow();
      if (found.length === 0 || this.#history.seq === before || !this.#isWhole) break;
      doubtful = new Set(found.map((finding) => finding.id ?? ""));
    }
    this.#findings.push(...found);
  }

  /** Looks once at everything stored, or at what was doubtful; returns what does not hold. */
  async #look(doubtful: ReadonlySet<string> | null): Promise<Finding[]> {
    const found: Finding[] = [];
    const present = new Set<string>();
    const newest = new Map<string, Item>();
    let unproven = 0;
    for await (const page of this.#pages()) {
      const wanted = page.filter((item) => doubtful?.has(item.id) ?? true);
      for (const item of wanted) {
        const { id, revision } = item;
        present.add(placeOf(id, revision));
        if ((newest.get(id)?.revision ?? 0) < revision) newest.set(id, item);
        if (this.#promises.find(id, revision) === undefined) unproven++;
        if (this.#isFollowed) found.push(...judgeName(this.#promises, item));
      }
      for (const batch of inBatches(wanted)) {
        found.push(...(await this.#judgeBlobs(batch, doubtful === null)));
      }
    }
    if (doubtful === null && this.#isWhole) this.#counts.unproven = unproven;
    // Others do not look again at what is erased in between.
    if (this.#isWhole) found.push(...judgeNewest(newest.values()));
    if (this.#isFollowed) found.push(...this.#findMissing(present, doubtful));
    return found;
  }

  /** Yields what is stored, by name, page by page. */
  async *#pages(): AsyncGenerator<readonly Item[], void> {
    let cursor: string | undefined;
    do {
      const query = { cursor, limit: PAGE, namespaces: this.#names };
      const { signal } = this.#options;
      const call: Call = { method: "GET", path: "/v1/inventory", query, signal };
      const page = await this.#client.session.call<"listInventory">(call);
      const items = parseList(page.items, "items");
      items.forEach(checkItem);
      yield items;
      cursor = onward(cursor, page.next_cursor);
    } while (cursor !== undefined);
  }

  async #judgeBlobs(items: readonly Item[], isCounted: boolean): Promise<Finding[]> {
    const { states } = this.#promises;
    const stated = items.flatMap((item) => states.get(item.id)?.blobId ?? []);
    const blobs = await this.#fetch([...items.map((item) => item.blob_id), ...stated]);
    const found: Finding[] = [];
    for (const item of items) {
      const stored = blobs.get(item.blob_id) ?? "missing";
      const faults = [...judgeBlob(this.#account, item, stored)];
      if (faults.length === 0 && this.#options.openAll && typeof stored !== "string") {
        faults.push(...this.#open(item, stored, isCounted));
      }
      found.push(...faults);
      if (!item.earlier && this.#isFollowed) {
        found.push(...this.#judgeState(item, states.get(item.id), blobs));
      }
      if (isCounted) this.#counts.blobs++;
      await this.#rest();
    }
    this.#options.onProgress?.("blobs", this.#counts.blobs);
    return found;
  }

  /** Returns stored bytes by name; what the relayer withholds is not among them. */
  async #fetch(names: readonly string[]): Promise<Map<string, Stored>> {
    const { signal } = this.#options;
    const blobs = new Map<string, Stored>();
    for (let left = [...new Set(names)]; left.length > 0;) {
      const body = { blob_ids: left.slice(0, BLOBS_AT_ONCE) };
      const call: Call = { method: "POST", path: "/v1/blobs", body, signal };
      const answer = await this.#client.session.call<"readBlobs">(call);
      const asked = new Set(left);
      for (const { blob_id: name, data, problem } of parseList(answer.blobs, "blobs")) {
        if (!asked.has(name)) continue;
        blobs.set(name, data === null ? String(problem) : parseBytes(data, "blob"));
      }
      const rest = left.filter((name) => !blobs.has(name));
      if (rest.length === left.length) break;
      left = rest;
    }
    return blobs;
  }

  /** Opens a blob with the keys at hand; those of named namespaces open only theirs. */
  *#open(item: Item, stored: Uint8Array, isCounted: boolean): Generator<Finding, void> {
    if (item.format !== "sealed") return;
    try {
      const keys = this.#keyring.namespaceKeys(item.namespace);
      const key = keys.find((one) => one.epoch === item.epoch);
      if (!key) throw new Invalid("epoch", `This key holds nothing of epoch ${item.epoch}.`);
      const { id: memory, revision } = item;
      const place = { type: TYPES[item.type]!, account: this.#account, memory, revision };
      const namespace = readNamespace(openEnvelope(place, key, stored));
      if (namespace !== item.namespace) {
        throw new Invalid("namespace", `It was sealed for ${JSON.stringify(namespace)}.`);
      }
      if (isCounted) this.#counts.opened++;
    } catch (error) {
      if (!(error instanceof Invalid || error instanceof NotGranted)) throw error;
      const { id } = item;
      yield makeFinding({ what: "sealed", id, expected: "a record", found: error.message });
    }
  }

  /** Judges a row by the newest signed state of its memory, which must be the one receipts name. */
  *#judgeState(
    item: Item,
    stated: PromisedState | undefined,
    blobs: ReadonlyMap<string, Stored>,
  ): Generator<Finding, void> {
    if (stated === undefined) {
      // Of what lies before the history that was followed, nothing is known.
      if (this.#promises.isComplete) yield* judgeState(item, undefined, null);
      return;
    }
    let signed;
    try {
      signed = this.#readState(item, stated, blobs.get(stated.blobId) ?? "missing");
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      const expected = `object ${stated.blobId}`;
      const { id } = item;
      yield makeFinding({ what: "state", id, seq: stated.seq, expected, found: error.message });
      return;
    }
    yield* judgeState(item, stated, signed);
  }

  #readState(item: Item, stated: PromisedState, stored: Stored): JsonObject {
    if (typeof stored === "string" || blobId(stored) !== stated.blobId) {
      const problem = typeof stored === "string" ? stored : "another one";
      throw new Invalid("blob", `A state object is ${problem}.`);
    }
    const value = readObject("state", stored, signerOf(stored, this.#relayers));
    const { state } = value;
    const isAboutThis =
      value["account"] === accountText(this.#account) &&
      value["memory"] === item.id &&
      value["seq"] === stated.seq;
    if (!isAboutThis || typeof state !== "object" || state === null || Array.isArray(state)) {
      throw new Invalid("state", "A state object is about something else.");
    }
    return state;
  }

  /** Yields the revisions that receipts promise and that are not stored. */
  *#findMissing(
    present: ReadonlySet<string>,
    doubtful: ReadonlySet<string> | null,
  ): Generator<Finding, void> {
    for (const [id, { revision, blobId: name, namespace, seq }] of this.#promises.list()) {
      const isLookedAt =
        (this.#names?.includes(namespace ?? "") ?? true) && (doubtful?.has(id) ?? true);
      if (!isLookedAt || present.has(placeOf(id, revision))) continue;
      const expected = `revision ${revision}, blob ${name}`;
      yield makeFinding({ what: "missing", id, seq, expected, found: "nothing" });
    }
  }

  /** Lists the kinds of objects that this key is not shown, or not all of. */
  #listUnchecked(): readonly string[] {
    if (!this.#isWhole) return ["receipts", "grants"];
    const { roles } = this.#keyring;
    return roles.size > 0 && !roles.has("owner") ? ["grants"] : [];
  }

  async #conclude(unchecked: readonly string[]): Promise<Verification> {
    const distinct = new Map(this.#findings.map((one) => [JSON.stringify(one), one]));
    const findings = [...distinct.values()];
    const { seq, head } = this.#history;
    if (this.#isWhole && findings.length === 0 && this.#start === undefined) {
      await this.#client.session.noteChecked(seq, head);
    }
    return {
      ok: findings.length === 0,
      account_id: accountText(this.#account),
      relayer_key: toHex(this.#relayers.at(-1)!),
      seq,
      head: toHex(head),
      ...this.#counts,
      notes: this.#notes,
      unchecked,
      findings,
    };
  }
}

function isCorrupted(error: unknown): error is ServerError {
  return error instanceof ServerError && error.code === CORRUPTED;
}

function checkItem(item: Item): void {
  try {
    uuidText(item.id);
    integer(item.size);
    integer(item.revision, 1);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    throw malformedAnswer("an item of the inventory");
  }
}

/** Yields items whose blobs fit into one answer. */
function* inBatches(items: readonly Item[]): Generator<readonly Item[], void> {
  let [batch, size] = [[] as Item[], 0];
  for (const item of items) {
    const isFull = batch.length === ITEMS_AT_ONCE || size + item.size > BLOB_BYTES_AT_ONCE;
    if (batch.length > 0 && isFull) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(item);
    size += item.size;
  }
  if (batch.length > 0) yield batch;
}

/** Returns the namespace that a record says it was sealed for. */
function readNamespace(record: Uint8Array): unknown {
  try {
    return (JSON.parse(fromUtf8(record)) as { readonly ns?: unknown }).ns;
  } catch {
    throw new Invalid("record", "There is no record inside.");
  }
}
