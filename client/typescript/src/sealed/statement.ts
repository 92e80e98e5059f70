/**
 * A relayer's statements about itself: its identity, its unlock keys, its successor.
 *
 * Not here: which relayer is pinned (`session.ts`).
 *
 * Source: SPEC.md §4, §6, §16.
 */

import { type Bytes, fromHex, sameBytes, toHex } from "../bytes.ts";
import { Invalid, UntrustedRelayer } from "../errors.ts";
import { type JsonValue, hasMembers } from "./json.ts";
import { maskKey, publicKeyBytes } from "./keys.ts";
import { integer, listOf, readClaimedMember, readObject } from "./objects.ts";
import { hash256, KEY_BYTES } from "./primitives.ts";

const STATEMENT_AGE_MS_MAX = 600_000;
const SUCCESSIONS_MAX = 64;
const UNLOCK_KEYS_MAX = 8;

/** One X25519 key that a relayer process holds in memory. */
export interface UnlockKey {
  readonly kid: Bytes;
  readonly key: Bytes;
  readonly notAfterMs: number;
}

/** The signed statement of a relayer about itself. */
export interface Statement {
  readonly relayer: Bytes;
  readonly issuedMs: number;
  readonly unlockKeys: readonly UnlockKey[];
}

/** Returns what `read` reads; a failed check is one of the relayer. */
export function blamingRelayer<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Invalid) || error instanceof UntrustedRelayer) throw error;
    throw new UntrustedRelayer(error.code, `${what}: ${error.message}`, { cause: error });
  }
}

/** Returns whether a statement may still be relied on. */
export function isFresh(statement: Statement, nowMs: number): boolean {
  return Math.abs(nowMs - statement.issuedMs) <= STATEMENT_AGE_MS_MAX;
}

/** Returns the unlock keys of this moment, at most eight, the longest-lived first. */
export function liveUnlockKeys(statement: Statement, nowMs: number): Bytes[] {
  return statement.unlockKeys
    .filter((entry) => entry.notAfterMs > nowMs)
    .sort((left, right) => right.notAfterMs - left.notAfterMs)
    .slice(0, UNLOCK_KEYS_MAX)
    .map((entry) => entry.key);
}

/**
 * Returns the key that an unverified statement names as its own.
 *
 * @throws {UntrustedRelayer} it names none.
 */
export function readSigner(data: Uint8Array): Bytes {
  return blamingRelayer("The relayer's statement", () =>
    publicKeyBytes(readClaimedMember(data, "relayer")),
  );
}

/**
 * Returns a relayer's statement, verified under the pinned key, or its own at first contact.
 *
 * @throws {UntrustedRelayer} `pin`, when another relayer signed; `stale`, when it is 10 minutes
 *   off; otherwise the failed check.
 */
export function readStatement(
  data: Uint8Array,
  pinned: Uint8Array | null,
  nowMs: number,
): Statement {
  const statement = blamingRelayer("The relayer's statement", () => {
    const value = readObject("relayer", data, "relayer");
    const relayer = publicKeyBytes(value["relayer"]);
    const unlockKeys = listOf(value["unlock_keys"]).map(readUnlockKey);
    return { relayer, issuedMs: integer(value["issued"]), unlockKeys };
  });
  if (pinned !== null && !sameBytes(statement.relayer, pinned)) {
    const [found, known] = [statement.relayer, pinned].map((key) => maskKey(toHex(key)));
    throw new UntrustedRelayer(
      "pin",
      `Another relayer answers than the pinned one: its key is ${found}, not ${known}.`,
    );
  }
  if (!isFresh(statement, nowMs)) {
    throw new UntrustedRelayer(
      "stale",
      "The relayer's statement is more than 10 minutes off this machine's clock.",
    );
  }
  return statement;
}

function readUnlockKey(entry: JsonValue): UnlockKey {
  if (!hasMembers(entry, ["kid", "key", "not_after"])) {
    throw new Invalid("members", "an unlock key has the members kid, key and not_after.");
  }
  const key = fromHex(entry["key"], KEY_BYTES, "unlock key");
  const kid = hash256(key).slice(0, 8);
  const notAfterMs = integer(entry["not_after"]);
  if (entry["kid"] !== toHex(kid)) {
    throw new Invalid("kid", "an unlock key does not have the id that it goes by.");
  }
  return { kid, key, notAfterMs };
}

/**
 * Returns every key that a relayer has had, oldest first, up to `last`.
 *
 * Each is vouched for by the one before it. The oldest may be anybody's: what counts is whether the
 * pinned key is among them.
 *
 * @throws {UntrustedRelayer} `succession`, when they do not lead to `last`; or the failed check.
 */
export function readSuccession(objects: readonly Uint8Array[], last: Uint8Array): Bytes[] {
  if (objects.length > SUCCESSIONS_MAX) {
    throw new UntrustedRelayer("succession", "The relayer's earlier keys are too many.");
  }
  const links = objects.map(readSuccessor);
  const keys = [...links.map((link) => link.relayer), last as Bytes];
  const isLinked = links.every((link, at) => sameBytes(link.next, keys[at + 1]!));
  if (!isLinked || new Set(keys.map(toHex)).size !== keys.length) {
    throw new UntrustedRelayer("succession", "The relayer's earlier keys do not lead to its own.");
  }
  return keys;
}

/** A relayer's key, and the one that it names as its successor. */
export interface Successor {
  readonly relayer: Bytes;
  readonly next: Bytes;
}

/**
 * Returns the key that signed a `relayer-next` object, and the one that it names.
 *
 * @throws {UntrustedRelayer} the failed check.
 */
export function readSuccessor(data: Uint8Array): Successor {
  return blamingRelayer("The relayer's successor", () => {
    const value = readObject("relayer-next", data, "relayer");
    integer(value["created"]);
    return { relayer: publicKeyBytes(value["relayer"]), next: publicKeyBytes(value["next"]) };
  });
}
