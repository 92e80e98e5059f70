/**
 * What receipts promise: the revisions that are stored, what is erased, grants and states.
 *
 * Not here: what is stored (`judging.ts`), whether the chain holds (`../sealed/receipts.ts`).
 *
 * - Nothing is judged by a part of the chain that was not followed: `isComplete` is false then.
 * - Memory grows by about 300 bytes with each stored revision.
 *
 * Source: SPEC.md §15.
 */

import type { Op, Receipt } from "../sealed/receipts.ts";

const CLOCKS_APART_MS = 300_000; // of relayers of one account; the order of receipts holds all the same
const STORING: readonly Op[] = [
  ...(["remember", "analyze", "restore", "edit"] as const),
  ...(["consolidate", "import", "reseal", "rebuild"] as const),
];
const RENAMING: readonly Op[] = ["reseal", "rebuild"]; // may give a revision another blob
const ERASING: readonly Op[] = ["forget", "expire"];
const GRANTING: readonly Op[] = ["grant", "revoke"];
const VERSION_AT = 14; // in the text of a UUID
const FORMER_VERSION = "8"; // of ids that turns had once, and are not named by again

/** One thing that does not hold: what it is about, what was expected there and what was found. */
export interface Finding {
  /**
   * A fixed word: chain, head, fork, rollback, rebuilt, checkpoint, grants, receipt, unnamed, missing,
   * erased, blob, header, state or sealed.
   */
  readonly what: string;
  readonly id: string | null;
  readonly seq: number | null;
  readonly expected: string | null;
  readonly found: string | null;
}

/** Returns a finding; what is not given is null. */
export function makeFinding(given: Partial<Finding> & Pick<Finding, "what">): Finding {
  return { id: null, seq: null, expected: null, found: null, ...given };
}

/** The blob that receipts promise for a revision, and the receipt that did so last. */
export interface PromisedBlob {
  readonly revision: number;
  readonly blobId: string;
  readonly namespace: string | null;
  readonly epoch: number | null;
  readonly seq: number;
}

/** The newest `state` object of a memory; an edit since then made it no longer stale. */
export interface PromisedState {
  readonly blobId: string;
  readonly seq: number;
  readonly isRefreshed: boolean;
}

/** The promises of all receipts of an account together, fed in order. */
export class Promises {
  /** Whether they were followed from the account's beginning. */
  isComplete: boolean;
  serial: number;
  isClosed = false;
  readonly grants = new Map<number, string>();
  readonly states = new Map<string, PromisedState>();
  readonly erased = new Set<string>();
  readonly #named = new Map<string, readonly PromisedBlob[]>();
  readonly #former = new Map<string, string>(); // turns with former ids, by blob
  #seq: number;
  #timeMs = 0;

  /** Begins with an account, or behind a checkpoint of it. */
  constructor(from?: { readonly seq: number; readonly grantSerial: number }) {
    this.isComplete = from === undefined;
    this.serial = from?.grantSerial ?? 0;
    this.#seq = from?.seq ?? 0;
  }

  /** Takes the next receipt in; yields what it contradicts in those before it. */
  *add(receipt: Receipt): Generator<Finding, void> {
    if (receipt.op === "rebuild") this.isComplete = false;
    else if (this.isClosed) {
      yield about(receipt, "nothing after the account was closed", receipt.op);
    }
    yield* this.#judgePlace(receipt);
    this.serial = receipt.serial;
    this.#seq = receipt.seq;
    this.#timeMs = receipt.timeMs;
    if (receipt.op === "close") {
      this.isClosed = true;
      this.#named.clear();
    }
    for (const { id, revision, blobId } of receipt.items) {
      if (GRANTING.includes(receipt.op)) this.grants.set(receipt.serial, blobId);
      else if (receipt.op === "state") {
        this.states.set(id, { blobId, seq: receipt.seq, isRefreshed: false });
      } else if (ERASING.includes(receipt.op)) {
        yield* this.#erase(receipt, id, revision, blobId);
      } else if (STORING.includes(receipt.op)) {
        yield* this.#store(receipt, id, revision, blobId);
      }
    }
  }

  /** Yields what is wrong with a receipt's serial and time, as they follow those before. */
  *#judgePlace(receipt: Receipt): Generator<Finding, void> {
    const isBeginning = this.#seq === 0 && !this.isComplete;
    const due = this.serial + (GRANTING.includes(receipt.op) ? 1 : 0);
    if (!isBeginning && receipt.serial !== due) {
      yield about(receipt, `grant serial ${due}`, `grant serial ${receipt.serial}`);
    }
    const backMs = this.#timeMs - receipt.timeMs;
    // A clock that was far ahead may have been set right.
    if (backMs > 0 && backMs <= CLOCKS_APART_MS) {
      const expected = `a time from ${this.#timeMs} ms on, that of the receipt before`;
      yield about(receipt, expected, `${receipt.timeMs} ms`);
    }
  }

  *#store(
    receipt: Receipt,
    id: string,
    revision: number,
    blobId: string,
  ): Generator<Finding, void> {
    if (revision === 0) {
      // A turn whose facts these are; it is not kept any longer.
      this.#forget(this.#former.get(blobId) ?? id, 1);
      return;
    }
    const known = this.find(id, revision);
    if (known && known.blobId !== blobId && !RENAMING.includes(receipt.op)) {
      yield about(receipt, `blob ${known.blobId}`, `blob ${blobId}`, id);
    }
    if (this.erased.has(id)) {
      yield about(receipt, "nothing of what was erased", `blob ${blobId}`, id);
    }
    const stated = this.states.get(id);
    if (receipt.op === "edit" && stated) this.states.set(id, { ...stated, isRefreshed: true });
    this.erased.delete(id);
    this.#forget(id, revision);
    const { namespace, epoch, seq } = receipt;
    const stored = { revision, blobId, namespace, epoch, seq };
    this.#named.set(id, [...(this.#named.get(id) ?? []), stored]);
    if (id[VERSION_AT] === FORMER_VERSION) this.#former.set(blobId, id);
  }

  *#erase(
    receipt: Receipt,
    given: string,
    revision: number,
    blobId: string,
  ): Generator<Finding, void> {
    const id = this.#former.get(blobId) ?? given;
    const known = this.find(id, revision);
    if (known && known.blobId !== blobId) {
      yield about(receipt, `blob ${known.blobId}`, `blob ${blobId}`, id);
    }
    this.#named.delete(id);
    this.states.delete(id);
    this.erased.add(id);
  }

  #forget(id: string, revision: number): void {
    const left = (this.#named.get(id) ?? []).filter((one) => one.revision !== revision);
    if (left.length > 0) this.#named.set(id, left);
    else this.#named.delete(id);
  }

  /** Returns what the receipts promise for a revision. */
  find(id: string, revision: number): PromisedBlob | undefined {
    return this.#named.get(id)?.find((one) => one.revision === revision);
  }

  /** Yields every promised revision with its memory's id. */
  *list(): Generator<readonly [string, PromisedBlob], void> {
    for (const [id, revisions] of this.#named) for (const one of revisions) yield [id, one];
  }
}

function about(receipt: Receipt, expected: string, found: string, id?: string): Finding {
  return makeFinding({ what: "receipt", id: id ?? null, seq: receipt.seq, expected, found });
}
