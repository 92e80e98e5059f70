/**
 * The unlock header: namespace keys on their way to a relayer's memory, and nowhere else.
 *
 * Not here: which keys a request needs (`session.ts`). Reading a header is the relayer's part.
 *
 * - A root never goes into a header.
 * - The boxes are made from the sender's key, so nobody else can plant keys in a request.
 *
 * Source: SPEC.md §6.
 */

import { type Bytes, concat, toBase64, toBase64Url, toHex } from "../bytes.ts";
import { Invalid } from "../errors.ts";
import { writeJson } from "./json.ts";
import { accountText, type Identity, type NamespaceKey } from "./keys.ts";
import {
  aeadSeal,
  boxKey,
  boxSeal,
  exact,
  hash256,
  NONCE_BYTES,
  randomBytes,
} from "./primitives.ts";

export const REUSE_MS_MAX = 240_000;
const HEADER_CHARS_MAX = 6 * 1024;
const BOXES_MAX = 8;
const KEYS_MAX = 64;
const VERSION = 1;

/** The payload of a header; `keys` are of the sender's namespaces. */
export interface Unlock {
  readonly relayer: Uint8Array;
  readonly account: Uint8Array;
  readonly issuedMs: number;
  readonly holdS: number;
  readonly keys: readonly NamespaceKey[];
}

/** What is random in a header, unless a test vector fixes it. */
export interface UnlockRandom {
  readonly contentKey: Uint8Array;
  readonly boxNonces: readonly Uint8Array[];
  readonly nonce: Uint8Array;
}

/**
 * Returns the header that gives `unlock` to the holders of `unlockKeys`.
 *
 * @throws {Invalid} `size`, when there are too many keys for one header; `unlock_key` for a bad one.
 */
export function buildUnlock(
  sender: Identity,
  unlock: Unlock,
  unlockKeys: readonly Uint8Array[],
  random: UnlockRandom = {
    contentKey: randomBytes(32),
    boxNonces: unlockKeys.map(() => randomBytes(NONCE_BYTES)),
    nonce: randomBytes(NONCE_BYTES),
  },
): string {
  const isSized = unlockKeys.length >= 1 && unlockKeys.length <= BOXES_MAX;
  if (!isSized || unlock.keys.length < 1 || unlock.keys.length > KEYS_MAX) {
    throw new Invalid("size", "A header has 1 to 8 boxes and 1 to 64 keys.");
  }
  const boxes = unlockKeys.map((key, at) =>
    box(sender, key, random.boxNonces[at]!, random.contentKey),
  );
  const head = concat(Uint8Array.of(VERSION, unlockKeys.length), ...boxes);
  const sealed = aeadSeal(random.contentKey, random.nonce, payload(sender, unlock), head);
  const header = toBase64Url(concat(head, random.nonce, sealed));
  if (header.length > HEADER_CHARS_MAX) {
    throw new Invalid("size", "The request needs the keys of too many namespaces at once.");
  }
  return header;
}

function box(
  sender: Identity,
  unlockKey: Uint8Array,
  nonce: Uint8Array,
  contentKey: Uint8Array,
): Bytes {
  exact(unlockKey, 32, "unlock key");
  let shared: Bytes;
  try {
    shared = boxKey(unlockKey, sender.exchangeSecret);
  } catch (error) {
    throw new Invalid("unlock_key", "The relayer's unlock key is not usable.", { cause: error });
  }
  return concat(hash256(unlockKey).subarray(0, 8), nonce, boxSeal(shared, nonce, contentKey));
}

function payload(sender: Identity, unlock: Unlock): Bytes {
  return writeJson({
    v: 1,
    relayer: toHex(unlock.relayer),
    account: accountText(unlock.account),
    sender: sender.publicKeyHex,
    iat: unlock.issuedMs,
    hold: unlock.holdS,
    keys: unlock.keys.map((key) => ({ ns: key.name, epoch: key.epoch, key: toBase64(key.key) })),
  });
}
