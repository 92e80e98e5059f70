/**
 * Compares what a relayer stores and shows with what its receipts promise: rules alone.
 *
 * Not here: fetching any of it (`verifying.ts`).
 *
 * - What receipts name must be there, and nothing else; what they erased must be gone.
 * - A blob is judged by its own bytes: its name is their hash, and its header says whose it is.
 *
 * Source: SPEC.md §15.
 */

import { sameBytes, toHex } from "../bytes.ts";
import type { Schemas } from "../description.ts";
import { Invalid } from "../errors.ts";
import {
  blobId,
  EPISODE,
  type EnvelopeHeader,
  MEMORY,
  readEnvelopeHeader,
  SUMMARY,
} from "../sealed/envelope.ts";
import type { JsonObject, JsonValue } from "../sealed/json.ts";
import type { Checkpoint, Receipt } from "../sealed/receipts.ts";
import { type Finding, makeFinding, type PromisedState, type Promises } from "./promises.ts";

/** A stored revision or turn, as the inventory names it. */
export type Item = Schemas["InventoryItem"];

/** The types of envelopes, by what the inventory calls them. */
export const TYPES: Readonly<Record<string, number>> = {
  memory: MEMORY,
  episode: EPISODE,
  summary: SUMMARY,
};

const NEW_STATE: JsonObject = {
  pinned: false,
  review: null,
  stale: false,
  superseded_at: null,
  superseded_by: null,
};
const UNLISTED: readonly string[] = ["merged", "default_life"]; // of a link and an end, in no inventory

/** Returns the place of a revision. */
export function placeOf(id: string, revision: number): string {
  return `${id} ${revision}`;
}

/** Yields what is wrong with the name under which a revision is stored. */
export function* judgeName(promises: Promises, item: Item): Generator<Finding, void> {
  const { id, revision, blob_id: name } = item;
  const named = promises.find(id, revision);
  if (named === undefined) {
    if (promises.erased.has(id) || promises.isClosed) {
      yield makeFinding({ what: "erased", id, expected: "nothing", found: name });
    } else if (promises.isComplete) {
      const found = `revision ${revision}, blob ${name}`;
      yield makeFinding({ what: "unnamed", id, expected: "a receipt", found });
    }
    return;
  }
  const { seq } = named;
  if (named.blobId !== name) {
    const expected = `revision ${revision}, blob ${named.blobId}`;
    yield makeFinding({ what: "receipt", id, seq, expected, found: `blob ${name}` });
  } else if (named.namespace !== item.namespace || named.epoch !== item.epoch) {
    const expected = `namespace ${JSON.stringify(named.namespace)}, epoch ${named.epoch}`;
    const found = `namespace ${JSON.stringify(item.namespace)}, epoch ${item.epoch}`;
    yield makeFinding({ what: "receipt", id, seq, expected, found });
  }
}

/** Stored bytes, or the relayer's word for why there are none. */
export type Stored = Uint8Array | string;

/** Yields what is wrong with a revision's own bytes. */
export function* judgeBlob(
  account: Uint8Array,
  item: Item,
  stored: Stored,
): Generator<Finding, void> {
  const { id } = item;
  if (typeof stored === "string") {
    yield makeFinding({ what: "blob", id, expected: item.blob_id, found: stored });
    return;
  }
  const name = blobId(stored);
  if (name !== item.blob_id) {
    yield makeFinding({ what: "blob", id, expected: item.blob_id, found: `bytes named ${name}` });
    return;
  }
  const header = readHeader(stored);
  if (item.format === "sealed") yield* judgeHeader(account, item, header);
  else if (!(header instanceof Invalid) && sameBytes(header.account, account)) {
    // Called so, one of ours would be shown without its text, and found by nothing.
    const found = `an envelope of this account, called ${item.format}`;
    yield makeFinding({ what: "header", id, expected: "foreign bytes", found });
  }
}

function readHeader(stored: Uint8Array): EnvelopeHeader | Invalid {
  try {
    return readEnvelopeHeader(stored);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    return error;
  }
}

function* judgeHeader(
  account: Uint8Array,
  item: Item,
  header: EnvelopeHeader | Invalid,
): Generator<Finding, void> {
  const { id } = item;
  if (header instanceof Invalid) {
    yield makeFinding({ what: "header", id, expected: "an envelope", found: header.message });
    return;
  }
  const pairs: [string, unknown, unknown][] = [
    ["type", TYPES[item.type], header.type],
    ["account", toHex(account), toHex(header.account)],
    ["memory", id, header.memory],
    ["revision", item.revision, header.revision],
    ["epoch", item.epoch, header.epoch],
  ];
  for (const [name, expected, found] of pairs) {
    if (expected === found) continue;
    const said = { expected: `${name} ${expected}`, found: `${name} ${found}` };
    yield makeFinding({ what: "header", id, ...said });
  }
}

/** Yields what is wrong with the newest stored revision of each memory, which is in force. */
export function* judgeNewest(items: Iterable<Item>): Generator<Finding, void> {
  for (const { id, revision, earlier } of items) {
    if (!earlier) continue;
    const expected = `revision ${revision} in force: none is newer`;
    yield makeFinding({ what: "state", id, expected, found: "an earlier revision" });
  }
}

/** Yields where a row differs from the newest signed state of its memory, or of a new one. */
export function* judgeState(
  item: Item,
  stated: PromisedState | undefined,
  signed: JsonObject | null,
): Generator<Finding, void> {
  const { superseded_at: at } = item;
  const said: JsonObject = {
    pinned: item.pinned,
    review: item.review,
    stale: item.stale,
    superseded_at: at === null ? null : Date.parse(at),
    superseded_by: item.superseded_by,
  };
  const due: { [name: string]: JsonValue } = { ...(signed ?? NEW_STATE) };
  for (const name of UNLISTED) delete due[name];
  if (stated?.isRefreshed) due["stale"] = false;
  const names = [...new Set([...Object.keys(said), ...Object.keys(due)])].sort();
  const differing = names.filter((name) => said[name] !== due[name]);
  if (differing.length === 0) return;
  const tell = (state: JsonObject): string =>
    differing.map((name) => `${name} ${state[name] ?? null}`).join(", ");
  yield makeFinding({
    what: "state",
    id: item.id,
    seq: stated?.seq ?? null,
    expected: tell(due),
    found: tell(said),
  });
}

/** Yields the differences between the grants that receipts name and those present, by serial. */
export function* judgeGrants(
  promises: Promises,
  names: ReadonlyMap<number, string>,
): Generator<Finding, void> {
  const newest = Math.max(0, ...names.keys());
  if (promises.serial !== newest) {
    const said = { expected: `serial ${promises.serial}`, found: `serial ${newest}` };
    yield makeFinding({ what: "grants", ...said });
  }
  for (const [serial, name] of promises.grants) {
    const present = names.get(serial) ?? name;
    if (present === name) continue;
    const found = `serial ${serial}, object ${present}`;
    yield makeFinding({ what: "grants", expected: `object ${name}`, found });
  }
}

/** Yields checkpoints that cannot both be true, whatever the relayer shows now. */
export function* judgeCheckpoints(checkpoints: readonly Checkpoint[]): Generator<Finding, void> {
  const heads = new Map<number, string>();
  for (const { seq, head } of checkpoints) {
    const [known, found] = [heads.get(seq) ?? toHex(head), toHex(head)];
    heads.set(seq, known);
    if (known === found) continue;
    const told = `head ${found}: the relayer signed two histories`;
    yield makeFinding({ what: "fork", seq, expected: `head ${known}`, found: told });
  }
}

/** A hash that was seen at a place of the chain, and where it was. */
interface Seen {
  readonly head: string;
  readonly where: string;
}

/** Points of the chain that were seen before: whoever rewrites history misses one. */
export class Landmarks {
  readonly #heads = new Map<number, Seen[]>();

  /** Expects a receipt with this number and hash. */
  add(seq: number, head: string, where: string): void {
    if (seq > 0) this.#heads.set(seq, [...(this.#heads.get(seq) ?? []), { head, where }]);
  }

  /** Leaves out what lies before a checkpoint; yields what was seen there and is not so in it. */
  *begin(start: Checkpoint): Generator<Finding, void> {
    for (const seq of this.#heads.keys()) if (seq < start.seq) this.#heads.delete(seq);
    yield* this.#compare(start.seq, toHex(start.head));
  }

  /** Yields what was seen before and is not so in the chain, up to this receipt. */
  *passBy(receipt: Receipt, isBeginning: boolean): Generator<Finding, void> {
    yield* this.#compare(receipt.seq, toHex(receipt.digest));
    if (!isBeginning || receipt.op !== "rebuild") return;
    for (const [seq, { head, where }] of this.#take((one) => one < receipt.seq)) {
      // The last receipt before an account was rebuilt may be linked.
      if (seq === receipt.seq - 1 && head === toHex(receipt.prev)) continue;
      const found = `a history that begins anew at ${receipt.seq}`;
      yield makeFinding({ what: "rebuilt", seq, expected: `${head} (${where})`, found });
    }
  }

  /** Yields what was seen and lies beyond the chain's end. */
  *listLeft(end: number): Generator<Finding, void> {
    for (const [seq, { head, where }] of this.#take((one) => one > end)) {
      const found = `a history that ends at ${end}`;
      yield makeFinding({ what: "rollback", seq, expected: `${head} (${where})`, found });
    }
  }

  *#compare(place: number, found: string): Generator<Finding, void> {
    for (const [seq, { head, where }] of this.#take((one) => one === place)) {
      if (head === found) continue;
      const told = `${found}: this history is another one`;
      yield makeFinding({ what: "fork", seq, expected: `${head} (${where})`, found: told });
    }
  }

  #take(isMeant: (seq: number) => boolean): [number, Seen][] {
    const places = [...this.#heads.keys()].filter(isMeant).sort((left, right) => left - right);
    return places.flatMap((seq) => {
      const seen = this.#heads.get(seq)!;
      this.#heads.delete(seq);
      return seen.map((one): [number, Seen] => [seq, one]);
    });
  }
}
