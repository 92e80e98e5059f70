/**
 * What the records of an archive say together: losses, erasures, and what receipts promise.
 *
 * Not here: the bytes (`../sealed/archive.ts`), requests (`exporting.ts`, `importing.ts`).
 *
 * Source: SPEC.md §15, §17.1.
 */

import { fromBase64 } from "../bytes.ts";
import { Invalid, UntrustedRelayer } from "../errors.ts";
import type { ArchiveRecord } from "../sealed/archive.ts";
import { integer, listOf, textOf, uuidText } from "../sealed/objects.ts";
import { History, type Receipt } from "../sealed/receipts.ts";
import { readSuccession } from "../sealed/statement.ts";

const VERSION_AT = 14; // in the text of a UUID

/** A row of an archive: a memory, an earlier revision of one, or a turn. */
export interface Row extends ArchiveRecord {
  readonly record: "memory" | "episode";
  readonly id: string;
  readonly blob_id: string;
  readonly blob: string | null;
  readonly revision_of?: string | null;
  readonly revision?: number;
}

/** Returns a record as a row, null where it is of another kind. */
export function asRow(record: ArchiveRecord): Row | null {
  const isRow = record.record === "memory" || record.record === "episode";
  return isRow ? (record as Row) : null;
}

/** Returns the id of the memory that a row is a revision of, or the row's own. */
export function memoryOf(row: Row): string {
  return row.revision_of ?? row.id;
}

type Check = (value: unknown) => boolean;
const isText: Check = (value) => typeof value === "string";
const isNumber: Check = (value) => Number.isSafeInteger(value);
const isList: Check = (value) => Array.isArray(value);
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);

// What is looked at before a relayer judges the rest: a relayer wrote it, so it may be anything.
const READ: Readonly<Record<string, Readonly<Record<string, Check>>>> = {
  account: {
    relayer: isText,
    succession: isList,
    receipt_seq: isNumber,
    memory_seq: isNumber,
    label: isText,
  },
  grant: { object: isText, succession: orNull(isText) },
  namespace: { name: isText, keys: isList },
  memory: {
    id: isText,
    seq: isNumber,
    revision_of: orNull(isText),
    type: isNumber,
    namespace: isText,
    epoch: isNumber,
    revision: isNumber,
    blob_id: isText,
    blob: orNull(isText),
  },
  episode: { id: isText, blob_id: isText, blob: orNull(isText) },
  receipt: { seq: isNumber, object: isText },
  tombstone: { id: isText, blob_ids: isList },
  end: { counts: (value) => typeof value === "object" && value !== null },
};

/**
 * Checks that a record of an archive has what it is read by.
 *
 * @throws {Invalid} `record`, when a member is missing or of another type; `uuid`, when its id is
 *   none.
 */
export function checkRecord(record: ArchiveRecord): void {
  for (const [name, isGood] of Object.entries(READ[record.record] ?? {})) {
    if (!isGood(record[name])) {
      throw new Invalid("record", `A record of the archive has no good ${name}.`);
    }
  }
  if ("id" in record) uuidText(record["id"]);
}

/**
 * Returns the names, one of which a tombstone has if the row was erased.
 *
 * The tombstone of a turn with an id of version 8 has another id: it is known by its blob.
 */
export function namesOf(row: Row): string[] {
  const isFormer = row.record === "episode" && row.id[VERSION_AT] === "8";
  return [
    row.id,
    ...(row.revision_of ? [row.revision_of] : []),
    ...(isFormer ? [row.blob_id] : []),
  ];
}

/** Rows that have no blob: neither did they come again with it, nor were they erased. */
export class Losses {
  readonly #without = new Map<string, readonly string[]>();
  readonly #erased = new Set<string>();

  /** Notes a record of an archive in its turn. */
  take(record: ArchiveRecord): void {
    const row = asRow(record);
    if (record.record === "tombstone") {
      this.#erased.add(textOf(record["id"]));
      for (const name of listOf(record["blob_ids"])) this.#erased.add(textOf(name));
    } else if (row !== null) {
      this.#without.delete(row.id);
      if (row.blob === null) this.#without.set(row.id, namesOf(row));
    }
  }

  /** Returns whether a tombstone has one of these names. */
  isErased(...names: readonly string[]): boolean {
    return names.some((name) => this.#erased.has(name));
  }

  /** Their number. */
  get size(): number {
    return [...this.#without.values()].filter((names) => !this.isErased(...names)).length;
  }
}

/** The receipts of an account that a relayer gave away, from the first to the newest. */
export class Evidence {
  readonly #account: Uint8Array;
  readonly #relayer: string;
  readonly #last: Uint8Array;
  #history: History | null = null;
  #least = 0;

  constructor(account: Uint8Array, relayer: Uint8Array, relayerHex: string) {
    this.#account = account;
    this.#last = relayer;
    this.#relayer = relayerHex;
  }

  /**
   * Notes a record in its turn; returns the receipt that it is, if it is one.
   *
   * @throws {UntrustedRelayer} a receipt does not follow the one before it, or another relayer
   *   signed it. {Invalid} the account is another relayer's, or does not come first.
   */
  take(record: ArchiveRecord): Receipt | null {
    if (record.record === "account") {
      if (record["relayer"] !== this.#relayer) {
        throw new Invalid("relayer", "The archive names two relayers.");
      }
      const named = listOf(record["succession"]).map((text) => fromBase64(text, "object"));
      this.#history = new History(readSuccession(named, this.#last), this.#account);
      this.#least = integer(record["receipt_seq"]);
    }
    if (record.record !== "receipt") return null;
    if (this.#history === null) {
      throw new Invalid("record", "The archive does not begin with its account.");
    }
    const receipt = this.#history.follow(fromBase64(record["object"], "receipt"));
    if (receipt.seq !== record["seq"]) {
      throw new UntrustedRelayer("chain", `Receipt ${receipt.seq} stands in another one's place.`);
    }
    return receipt;
  }

  /**
   * Checks that the receipts reach as far as the account's history did.
   *
   * @throws {Invalid} the newest are missing.
   */
  checkEnd(): void {
    if (this.#history === null || this.#history.seq < this.#least) {
      throw new Invalid("chain", "The archive's newest receipts are missing.");
    }
  }
}

const STORING = ["remember", "analyze", "restore", "edit", "consolidate", "import", "reseal"];

/** The objects that an archive's receipts promise, beside those that it has. */
export class PromisedObjects {
  readonly #named = new Map<string, Map<number, string>>();
  readonly #former = new Map<string, string>(); // turns with former ids, by blob
  readonly #held = new Set<string>();

  /** Notes a memory, an earlier revision or a turn of the archive. */
  hold(row: Row): void {
    this.#held.add(`${memoryOf(row)} ${row.revision ?? 1} ${row.blob_id}`);
  }

  /** Notes the next receipt. */
  add(receipt: Receipt): void {
    for (const { id, revision, blobId } of receipt.items) {
      if (receipt.op === "forget" || receipt.op === "expire") {
        this.#named.delete(this.#former.get(blobId) ?? id);
      } else if (STORING.includes(receipt.op) && revision === 0) {
        // A turn whose facts these are; it is not kept any longer.
        this.#named.get(this.#former.get(blobId) ?? id)?.delete(1);
      } else if (STORING.includes(receipt.op)) {
        const revisions = this.#named.get(id) ?? new Map<number, string>();
        this.#named.set(id, revisions.set(revision, blobId));
        if (id[VERSION_AT] === "8") this.#former.set(blobId, id);
      }
    }
  }

  /** Returns the ids of what is promised and not there; `losses` tells what is gone since. */
  listMissing(losses: Losses): string[] {
    const lacking = new Set<string>();
    for (const [id, revisions] of this.#named) {
      for (const [revision, blobId] of revisions) {
        const isThere = this.#held.has(`${id} ${revision} ${blobId}`);
        if (!isThere && !losses.isErased(id, blobId)) lacking.add(id);
      }
    }
    return [...lacking].sort();
  }
}
