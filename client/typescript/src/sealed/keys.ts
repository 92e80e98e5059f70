/**
 * Keys and ids of a memrelay account, and the keys that are derived from them.
 *
 * Not here: signed objects (`objects.ts`), who may hold which key (`grants.ts`).
 *
 * - Keys hide themselves however they are printed or turned into JSON: their bytes are private
 *   fields, and come out by a getter alone.
 *
 * Source: SPEC.md §2, §3.
 */

import { type Bytes, concat, fromHex, toHex, u32, utf8 } from "../bytes.ts";
import { ConfigError, Invalid } from "../errors.ts";
import {
  exact,
  exchangePublic,
  exchangePublicOf,
  exchangeSecretOf,
  hash256,
  kdf,
  KEY_BYTES,
  publicKeyOf,
  randomBytes,
  sign,
} from "./primitives.ts";

export const EPOCH_MAX = 2 ** 32 - 1;

/** Returns a public key from hex, refusing one that cannot be an exchange key as well. */
export function publicKeyBytes(text: unknown): Bytes {
  const key = fromHex(text, KEY_BYTES, "public key");
  exchangePublic(key);
  return key;
}

/** Returns the account id that belongs to a founder's public key. */
export function accountIdOf(founder: Uint8Array): Bytes {
  return hash256(concat(Uint8Array.of(0), exact(founder, KEY_BYTES, "public key")));
}

/** Returns an account id as `0x` and 64 hex digits. */
export function accountText(account: Uint8Array): string {
  return "0x" + toHex(exact(account, 32, "account id"));
}

/**
 * Returns an account id from its text form.
 *
 * @throws {Invalid} `account`, when it is none.
 */
export function accountBytes(text: unknown): Bytes {
  if (typeof text !== "string" || !/^0x[0-9a-f]{64}$/.test(text)) {
    throw new Invalid("account", "An account id is 0x and 64 lower-case hexadecimal digits.");
  }
  return fromHex(text.slice(2), 32, "account id");
}

/** Returns the first four and last four characters of a key's text. */
export function maskKey(text: string): string {
  return text.length > 12 ? `${text.slice(0, 4)}…${text.slice(-4)}` : "…";
}

/**
 * Returns `epoch` if it is a u32 from 1.
 *
 * @throws {Invalid} `epoch`, when it is not.
 */
export function checkEpoch(epoch: unknown): number {
  if (!Number.isInteger(epoch) || (epoch as number) < 1 || (epoch as number) > EPOCH_MAX) {
    throw new Invalid("epoch", "An epoch is a whole number from 1.");
  }
  return epoch as number;
}

/** An Ed25519 identity, made from a 32-byte seed, and the exchange key that follows from it. */
export class Identity {
  readonly publicKey: Bytes;
  readonly #seed: Bytes;
  readonly #exchangeSecret: Bytes;

  constructor(seed: Uint8Array) {
    this.#seed = exact(seed, KEY_BYTES, "private key").slice();
    this.publicKey = publicKeyOf(this.#seed);
    this.#exchangeSecret = exchangeSecretOf(this.#seed);
  }

  /** Returns a new random identity. */
  static generate(): Identity {
    return new Identity(randomBytes(KEY_BYTES));
  }

  /**
   * Returns the identity of a hex seed.
   *
   * @throws {ConfigError} `text` is not 64 hex digits; the message does not repeat it.
   */
  static fromHex(text: string): Identity {
    try {
      return new Identity(fromHex(text.trim().toLowerCase(), KEY_BYTES, "private key"));
    } catch (error) {
      if (error instanceof Invalid) throw new ConfigError(error.message);
      throw error;
    }
  }

  /** The public key in hex. */
  get publicKeyHex(): string {
    return toHex(this.publicKey);
  }

  /** The X25519 secret. */
  get exchangeSecret(): Bytes {
    return this.#exchangeSecret;
  }

  /** The X25519 public key. */
  get exchangePublic(): Bytes {
    return exchangePublicOf(this.#exchangeSecret);
  }

  /** Returns the 64-byte detached signature of a message. */
  sign(message: Uint8Array): Bytes {
    return sign(message, this.#seed);
  }

  /** Returns the private key itself: for a profile or a single print-out, never for a log. */
  seedHex(): string {
    return toHex(this.#seed);
  }

  toJSON(): string {
    return `Identity(${maskKey(this.publicKeyHex)})`;
  }
}

/** The root of one epoch of an account; every namespace key of that epoch follows from it. */
export class Root {
  readonly epoch: number;
  readonly #key: Bytes;

  constructor(key: Uint8Array, epoch: number) {
    this.#key = exact(key, KEY_BYTES, "root").slice();
    this.epoch = checkEpoch(epoch);
  }

  /** Returns a new random root. */
  static generate(epoch = 1): Root {
    return new Root(randomBytes(KEY_BYTES), epoch);
  }

  /** The root's bytes, for a box alone. */
  get key(): Bytes {
    return this.#key;
  }

  /** The public name of this root. */
  get rootId(): Bytes {
    return kdf(this.#key, "root-id");
  }

  /** Returns the key of a namespace, given its normalised name. */
  namespaceKey(account: Uint8Array, name: string): NamespaceKey {
    const parts = [exact(account, 32, "account id"), u32(this.epoch), utf8(name)];
    return new NamespaceKey(kdf(this.#key, "namespace", ...parts), this.epoch, name);
  }
}

/** A use of a namespace's key. */
export type SubkeyLabel = "seal" | "index" | "vector" | "fingerprint" | "idempotency";

/** The key of one namespace in one epoch. */
export class NamespaceKey {
  readonly epoch: number;
  readonly name: string;
  readonly #key: Bytes;

  constructor(key: Uint8Array, epoch: number, name: string) {
    this.#key = exact(key, KEY_BYTES, "namespace key").slice();
    this.epoch = checkEpoch(epoch);
    this.name = name;
  }

  /** The key's bytes, for a box or an unlock header alone. */
  get key(): Bytes {
    return this.#key;
  }

  /** The public name of this key; it commits to the key. */
  get keyId(): Bytes {
    return kdf(this.#key, "key-id");
  }

  /** Returns the key for one use. */
  subkey(label: SubkeyLabel): Bytes {
    return kdf(this.#key, label);
  }
}
