/**
 * What one client has verified so far, kept from one run to the next.
 *
 * Not here: what it means, and how two such states are merged (`trust.ts`); what is verified, and
 * when (`session.ts`).
 *
 * - The store is read before it is used and before it is written: other clients may share it.
 * - Receipts come with every write, so they are saved now and then; all else is saved at once.
 *
 * Source: SPEC.md §15.
 */

import { fromHex } from "./bytes.ts";
import { ConfigError } from "./errors.ts";
import { Heads, NO_HEAD, type Receipt } from "./sealed/receipts.ts";
import { mergeTrust, NOTHING_SEEN, type TrustState, type TrustStore } from "./trust.ts";

const SAVE_EVERY_MS = 5_000;
const OF_TRUST = ["relayer_key", "sealed", "grant_serial", "epoch", "checked_seq"] as const;

/** The state of one client, and where it is kept. */
export class Seen {
  readonly #store: TrustStore;
  readonly #onWarning: ((message: string) => void) | undefined;
  #state: TrustState = NOTHING_SEEN;
  #heads: Heads | null = null;
  #opening: Promise<void> | null = null;
  #savedMs = performance.now();
  #hasFailedToSave = false;

  constructor(store: TrustStore, onWarning: ((message: string) => void) | undefined) {
    this.#store = store;
    this.#onWarning = onWarning;
  }

  /** The state as far as it was read. */
  get state(): TrustState {
    return this.#state;
  }

  /** Returns the state, read from its store the first time. */
  async open(): Promise<TrustState> {
    this.#opening ??= this.refresh();
    await this.#opening;
    return this.#state;
  }

  /** Takes over what other clients have kept meanwhile. */
  async refresh(): Promise<void> {
    const known = await this.#store.read();
    if (known !== null) this.#state = mergeTrust(this.#state, known);
    const { receipt_seq: seq, receipt_head: head } = this.#state;
    this.#heads ??= new Heads({ seq, head: head ? fromHex(head, 32, "hash") : NO_HEAD });
  }

  /** Returns whether a receipt agrees with those that were taken before. */
  async take(receipt: Receipt): Promise<boolean> {
    await this.open();
    return this.#heads!.take(receipt);
  }

  /** Adds what was verified. */
  async note(values: Partial<TrustState>): Promise<void> {
    const before = await this.open();
    const after = mergeTrust(before, { ...NOTHING_SEEN, ...values });
    this.#state = after;
    const isOfTrust =
      OF_TRUST.some((name) => before[name] !== after[name]) ||
      before.succession.join() !== after.succession.join() ||
      after.receipt_serial > Math.max(before.receipt_serial, before.grant_serial);
    if (isOfTrust || performance.now() - this.#savedMs >= SAVE_EVERY_MS) await this.save();
  }

  /** Writes the state to its store; one that fails costs no request, and is told once. */
  async save(): Promise<void> {
    this.#savedMs = performance.now();
    try {
      await this.refresh();
      await this.#store.write(this.#state);
    } catch (error) {
      if (error instanceof ConfigError) throw error; // it was damaged meanwhile
      if (!this.#hasFailedToSave) {
        this.#onWarning?.("What was verified cannot be kept; it counts until the end.");
      }
      this.#hasFailedToSave = true;
    }
  }
}
