/**
 * Receipts: the relayer's signed record of every change to an account, each tied to the last.
 *
 * Not here: how far the chain was followed before (`session.ts`).
 *
 * - A chain is signed by the keys of one relayer in their order: none signs after its successor did.
 *
 * Source: SPEC.md §4.3, §15.
 */

import { type Bytes, fromHex, sameBytes, toHex } from "../bytes.ts";
import { Invalid, UntrustedRelayer } from "../errors.ts";
import type { JsonValue } from "./json.ts";
import { accountBytes } from "./keys.ts";
import { normaliseNamespace } from "./names.ts";
import { integer, listOf, readClaimedMember, readObject, textOf, uuidText } from "./objects.ts";
import { hash256, KEY_BYTES } from "./primitives.ts";
import { blamingRelayer } from "./statement.ts";

/** The hash in front of an account's first receipt. */
export const NO_HEAD: Bytes = new Uint8Array(32);

const HEADS_MAX = 1_024;
const CLOCKS_APART_MS_MAX = 600_000; // this machine's and a relayer's 300 s, two relayers' as much
const OPERATIONS = [
  ...(["remember", "analyze", "restore", "edit", "state", "consolidate", "import"] as const),
  ...(["reseal", "forget", "expire", "grant", "revoke", "rebuild", "close"] as const),
];
const SEALING: readonly string[] = ["remember", "analyze", "edit"]; // under the newest epoch
const GONE = 0; // the revision of a turn that waited, whatever it was sealed under

/** What a receipt is for. */
export type Op = (typeof OPERATIONS)[number];

/** A memory's or grant's id, a revision, and the name of its bytes. */
export interface ReceiptItem {
  readonly id: string;
  readonly revision: number;
  readonly blobId: string;
}

/** One link of an account's history; `digest` is what the next receipt names as `prev`. */
export interface Receipt {
  readonly account: Bytes;
  readonly seq: number;
  readonly prev: Bytes;
  readonly timeMs: number;
  readonly op: Op;
  readonly actor: Bytes;
  readonly namespace: string | null;
  readonly epoch: number | null;
  readonly items: readonly ReceiptItem[];
  readonly serial: number;
  readonly relayer: Bytes;
  readonly digest: Bytes;
}

/**
 * Returns a receipt of this account, verified under the relayer's key.
 *
 * @throws {UntrustedRelayer} the failed check.
 */
export function readReceipt(data: Uint8Array, relayer: Uint8Array, account: Uint8Array): Receipt {
  return blamingRelayer("A receipt", () => {
    const value = readObject("receipt", data, relayer);
    checkPlace(value, relayer, account);
    if (!OPERATIONS.includes(value["op"] as Op)) {
      throw new Invalid("op", "it has an unknown operation.");
    }
    return {
      account: account as Bytes,
      seq: integer(value["seq"], 1),
      prev: fromHex(value["prev"], 32, "hash"),
      timeMs: integer(value["time"]),
      op: value["op"] as Op,
      actor: fromHex(value["actor"], KEY_BYTES, "public key"),
      namespace: value["namespace"] === null ? null : textOf(value["namespace"]),
      epoch: value["epoch"] === null ? null : integer(value["epoch"]),
      items: listOf(value["items"]).map(readItem),
      serial: integer(value["serial"]),
      relayer: relayer as Bytes,
      digest: hash256(data),
    };
  });
}

function checkPlace(
  value: { [name: string]: JsonValue },
  relayer: Uint8Array,
  account: Uint8Array,
): void {
  const isOfAccount = sameBytes(accountBytes(value["account"]), account);
  if (value["relayer"] !== toHex(relayer) || !isOfAccount) {
    throw new Invalid("account", "it belongs to another relayer or account.");
  }
}

function readItem(item: JsonValue): ReceiptItem {
  if (!Array.isArray(item) || item.length !== 3) {
    throw new Invalid("items", "an item is an id, a revision and a blob id.");
  }
  return { id: uuidText(item[0]), revision: integer(item[1]), blobId: textOf(item[2]) };
}

/** The knowledge of a client when it sent a request; `namespaces` are null where not known. */
export interface RequestState {
  readonly atMs: number;
  readonly epoch: number;
  readonly namespaces: readonly string[] | null;
}

/**
 * Checks that a receipt of an answer is of this request, not of another or earlier one.
 *
 * @throws {UntrustedRelayer} it is for another namespace, an epoch that was over, or older.
 */
export function checkOfRequest(receipt: Receipt, asked: RequestState): void {
  if (receipt.timeMs < asked.atMs - CLOCKS_APART_MS_MAX) {
    throw new UntrustedRelayer("receipt", "A receipt is older than what it was asked for.");
  }
  const isSealing =
    SEALING.includes(receipt.op) && receipt.items.some((item) => item.revision !== GONE);
  if (isSealing && (receipt.epoch ?? 0) < asked.epoch) {
    throw new UntrustedRelayer("receipt", "A receipt is for an epoch that is over.");
  }
  const names = asked.namespaces?.map(normaliseNamespace);
  if (names && (receipt.namespace === null || !names.includes(receipt.namespace))) {
    throw new UntrustedRelayer("receipt", "A receipt is for another namespace than asked.");
  }
}

/** How far a chain of receipts was followed. */
export interface ChainEnd {
  readonly seq: number;
  readonly head: Uint8Array;
}

/**
 * An account's receipts, followed one by one; `seq` and `head` are those of the last.
 *
 * `relayers` are all keys that the relayer has had, oldest first.
 */
export class History {
  readonly #relayers: Bytes[];
  readonly #account: Bytes;
  #seq: number;
  #head: Bytes;
  #isBeginning = true;

  constructor(
    relayers: readonly Uint8Array[],
    account: Uint8Array,
    from: ChainEnd = { seq: 0, head: NO_HEAD },
  ) {
    this.#relayers = [...relayers] as Bytes[];
    this.#account = account as Bytes;
    this.#seq = from.seq;
    this.#head = from.head as Bytes;
  }

  get seq(): number {
    return this.#seq;
  }

  get head(): Bytes {
    return this.#head;
  }

  /**
   * Returns the next receipt; only the first may be that of an account rebuilt.
   *
   * @throws {UntrustedRelayer} `chain`, when it does not follow the last; or the failed check.
   */
  follow(data: Uint8Array): Receipt {
    const signer = signerOf(data, this.#relayers);
    const receipt = readReceipt(data, signer, this.#account);
    let follows = receipt.seq === this.#seq + 1 && sameBytes(receipt.prev, this.#head);
    if (receipt.op === "rebuild") {
      // It begins a chain of its own, or follows the one that somebody remembers.
      follows = this.#isBeginning && (follows || this.#seq === 0);
    }
    if (!follows) {
      throw new UntrustedRelayer("chain", `The receipts break after number ${this.#seq}.`);
    }
    this.#relayers.splice(0, this.#relayers.indexOf(signer));
    this.#seq = receipt.seq;
    this.#head = receipt.digest;
    this.#isBeginning = false;
    return receipt;
  }
}

/**
 * Returns the receipts that follow an end of the chain, unbroken.
 *
 * @throws {UntrustedRelayer} `chain`, at the first gap or change; otherwise the failed check.
 */
export function followReceipts(
  objects: readonly Uint8Array[],
  relayers: readonly Uint8Array[],
  account: Uint8Array,
  from: ChainEnd,
): Receipt[] {
  const history = new History(relayers, account, from);
  return objects.map((data) => history.follow(data));
}

/**
 * The chain as receipts of answers, in any order, describe it; as far as the newest go.
 *
 * A receipt tells the chain's hash at two numbers, its own and the one before it.
 */
export class Heads {
  readonly #heads = new Map<number, string>();
  readonly #taken = new Map<string, true>();

  constructor(from: ChainEnd) {
    this.#heads.set(0, toHex(NO_HEAD)).set(from.seq, toHex(from.head));
  }

  /**
   * Takes in what came with an answer; returns whether it is of the history known so far.
   *
   * After another one, that of before is forgotten: a relayer may have been set back.
   *
   * @throws {UntrustedRelayer} `receipt`, when this one came with another answer before.
   */
  take(receipt: Receipt): boolean {
    const digest = toHex(receipt.digest);
    if (this.#taken.has(digest)) {
      throw new UntrustedRelayer("receipt", "A receipt is one of an earlier answer.");
    }
    this.#taken.set(digest, true);
    const said: [number, string][] = [
      [receipt.seq - 1, toHex(receipt.prev)],
      [receipt.seq, digest],
    ];
    const agrees = said.every(([seq, head]) => (this.#heads.get(seq) ?? head) === head);
    if (!agrees) this.#heads.clear();
    for (const [seq, head] of said) this.#heads.set(seq, head);
    forgetOldest(this.#heads);
    forgetOldest(this.#taken);
    return agrees;
  }
}

function forgetOldest(known: Map<unknown, unknown>): void {
  for (const name of known.keys()) {
    if (known.size <= HEADS_MAX) return;
    known.delete(name);
  }
}

/**
 * Returns which of a relayer's keys an unverified object claims to be signed by, else the last.
 *
 * Whatever it claims, it counts only once it is verified under the key returned.
 */
export function signerOf(data: Uint8Array, relayers: readonly Uint8Array[]): Bytes {
  let claimed: JsonValue = null;
  try {
    claimed = readClaimedMember(data, "relayer");
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
  }
  const found = relayers.find((key) => toHex(key) === claimed);
  return (found ?? relayers[relayers.length - 1]) as Bytes;
}

/** The state of an account's history at a time, signed by its relayer; `signed` is its proof. */
export interface Checkpoint {
  readonly account: Bytes;
  readonly seq: number;
  readonly head: Bytes;
  readonly grantSerial: number;
  readonly timeMs: number;
  readonly relayer: Bytes;
  readonly signed: Bytes;
}

/**
 * Returns a checkpoint of this account, signed by any key that the relayer has had.
 *
 * @throws {UntrustedRelayer} the failed check.
 */
export function readCheckpoint(
  data: Uint8Array,
  relayers: readonly Uint8Array[],
  account: Uint8Array,
): Checkpoint {
  const signer = signerOf(data, relayers);
  return blamingRelayer("A checkpoint", () => {
    const value = readObject("checkpoint", data, signer);
    checkPlace(value, signer, account);
    return {
      account: account as Bytes,
      seq: integer(value["seq"], 1),
      head: fromHex(value["head"], 32, "hash"),
      grantSerial: integer(value["grant_serial"]),
      timeMs: integer(value["time"]),
      relayer: signer,
      signed: data as Bytes,
    };
  });
}
