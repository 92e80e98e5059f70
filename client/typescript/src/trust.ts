/**
 * What a client has verified so far; a relayer that offers less is refused.
 *
 * - It only ever rises, also when several clients share a store.
 * - Its members are those of the Python client's file beside a profile.
 *
 * Source: SPEC.md §15, §16.
 */

import { fromBase64, fromHex, sameBytes, toHex } from "./bytes.ts";
import { ConfigError, Invalid } from "./errors.ts";
import { readSuccessor } from "./sealed/statement.ts";

/**
 * The state that was verified.
 *
 * `receipt_*` is the newest receipt that came with an answer, `checked_*` the end of the chain that
 * was followed link by link. `grant_serial` is the highest that owners signed, `receipt_serial`
 * that a receipt named, which is the relayer's word. `succession` are the relayer's `relayer-next`
 * objects in base64.
 */
export interface TrustState {
  readonly relayer_key: string | null;
  readonly sealed: boolean;
  readonly grant_serial: number;
  readonly epoch: number;
  readonly receipt_seq: number;
  readonly receipt_head: string;
  readonly receipt_serial: number;
  readonly checked_seq: number;
  readonly checked_head: string;
  readonly succession: readonly string[];
}

/** Where the state is kept; both may answer later. `read` returns null where nothing is kept. */
export interface TrustStore {
  read(): TrustState | null | Promise<TrustState | null>;
  write(state: TrustState): void | Promise<void>;
}

/** The state of a client that has not met its relayer. */
export const NOTHING_SEEN: TrustState = {
  relayer_key: null,
  sealed: false,
  grant_serial: 0,
  epoch: 0,
  receipt_seq: 0,
  receipt_head: "",
  receipt_serial: 0,
  checked_seq: 0,
  checked_head: "",
  succession: [],
};

/** Keeps the state as long as the client lives. */
export class MemoryTrustStore implements TrustStore {
  #state: TrustState | null = null;

  read(): TrustState | null {
    return this.#state;
  }

  write(state: TrustState): void {
    this.#state = state;
  }
}

/**
 * Returns a state that somebody kept as JSON.
 *
 * @throws {ConfigError} it is damaged.
 */
export function readTrustState(value: unknown): TrustState {
  const given = value as Record<string, unknown>;
  const isOfForm = Object.entries(NOTHING_SEEN).every(([name, usual]) => {
    const member = given?.[name];
    if (name === "relayer_key") return member === null || typeof member === "string";
    if (name === "succession") return Array.isArray(member);
    return typeof member === typeof usual;
  });
  try {
    if (!isOfForm) throw new Invalid("members", "A member is missing or of another type.");
    const state = given as unknown as TrustState;
    if (state.relayer_key !== null) fromHex(state.relayer_key, 32, "relayer key");
    for (const head of [state.receipt_head, state.checked_head]) {
      if (head !== "") fromHex(head, 32, "hash");
    }
    for (const text of state.succession) readSuccessor(fromBase64(text, "successor"));
    return pick(state);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    const told =
      "What this client has verified so far is damaged; compare receipts, then remove it.";
    throw new ConfigError(told, { cause: error });
  }
}

function pick(state: TrustState): TrustState {
  const names = Object.keys(NOTHING_SEEN) as (keyof TrustState)[];
  return Object.fromEntries(names.map((name) => [name, state[name]])) as unknown as TrustState;
}

/** Returns the higher of both, member by member; the pin of `left` wins. */
export function mergeTrust(left: TrustState, right: TrustState): TrustState {
  const newest = right.receipt_seq > left.receipt_seq ? right : left;
  const checked = right.checked_seq > left.checked_seq ? right : left;
  return {
    relayer_key: left.relayer_key ?? right.relayer_key,
    sealed: left.sealed || right.sealed,
    grant_serial: Math.max(left.grant_serial, right.grant_serial),
    epoch: Math.max(left.epoch, right.epoch),
    receipt_seq: newest.receipt_seq,
    receipt_head: newest.receipt_head,
    receipt_serial: Math.max(left.receipt_serial, right.receipt_serial),
    checked_seq: checked.checked_seq,
    checked_head: checked.checked_head,
    succession: join(left.succession, right.succession),
  };
}

/** A succession, with what goes on in another one from where it ends. */
function join(before: readonly string[], other: readonly string[]): readonly string[] {
  if (before.length === 0 || other.length === 0) return before.length > 0 ? before : other;
  if (before.join() === other.join()) return before;
  const last = readSuccessor(fromBase64(before.at(-1), "successor")).next;
  const from = other.findIndex((text) =>
    sameBytes(readSuccessor(fromBase64(text, "successor")).relayer, last),
  );
  return from < 0 ? before : [...before, ...other.slice(from)];
}

/**
 * Returns the state for a client whose profile pins another key from now on.
 *
 * Of another relayer's account only that is kept which holds wherever it is.
 */
export function pinTrust(state: TrustState, relayerKey: string): TrustState {
  const keys = state.succession.flatMap((text) => {
    const named = readSuccessor(fromBase64(text, "successor"));
    return [toHex(named.relayer), toHex(named.next)];
  });
  const isSame = state.relayer_key === null || [state.relayer_key, ...keys].includes(relayerKey);
  if (isSame) return state;
  const { sealed, grant_serial, epoch } = state;
  return { ...NOTHING_SEEN, sealed, grant_serial, epoch };
}
