/**
 * The primitives of SPEC.md, from the `@noble` libraries, with libsodium's rules.
 *
 * Not here: which key is for what (`keys.ts`).
 *
 * - Random bytes come from the platform's `crypto`. Hashes and signatures do not: `crypto.subtle` is
 *   missing on pages that are served without TLS, and answers later, which would make every reader
 *   of a format asynchronous.
 *
 * Source: SPEC.md §2, §3.
 */

import { hsalsa, xsalsa20poly1305 } from "@noble/ciphers/salsa.js";
import { xchacha20poly1305 } from "@noble/ciphers/chacha.js";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { sha256 as nobleSha256 } from "@noble/hashes/sha2.js";

import { type Bytes, concat, toHex, u32, utf8 } from "../bytes.ts";
import { Invalid } from "../errors.ts";

export const KEY_BYTES = 32;
export const NONCE_BYTES = 24;
export const TAG_BYTES = 16;
export const SEALED_BOX_EXTRA_BYTES = KEY_BYTES + TAG_BYTES;

const POINTS_MAX = 1_024;

/**
 * Returns `data` if it has `size` bytes.
 *
 * @throws {Invalid} `length`, when it has not.
 */
export function exact(data: Uint8Array, size: number, what: string): Bytes {
  if (!(data instanceof Uint8Array) || data.length !== size) {
    throw new Invalid("length", `A ${what} has ${size} bytes.`);
  }
  return data as Bytes;
}

/** Returns random bytes. */
export function randomBytes(size: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(size));
}

/** Returns a random UUID (version 4). */
export function randomUuid(): string {
  const data = randomBytes(16);
  data[6] = (data[6]! & 0x0f) | 0x40;
  data[8] = (data[8]! & 0x3f) | 0x80;
  const hex = toHex(data);
  const parts = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20)];
  return [...parts, hex.slice(20)].join("-");
}

/** Returns SHA-256. */
export function sha256(data: Uint8Array): Bytes {
  return nobleSha256(data) as Bytes;
}

/** Returns BLAKE2b-256 of `data`, unkeyed. */
export function hash256(data: Uint8Array): Bytes {
  return blake2b(data, { dkLen: 32 }) as Bytes;
}

/** Returns unkeyed BLAKE2b of another length, in bytes. */
export function hashOf(size: number, data: Uint8Array): Bytes {
  return blake2b(data, { dkLen: size }) as Bytes;
}

/**
 * Returns the `size`-byte keyed hash of `parts` under a label.
 *
 * The size is a parameter of the hash: a longer digest cut short is another value.
 */
export function mac(
  size: number,
  key: Uint8Array,
  label: string,
  ...parts: readonly Uint8Array[]
): Bytes {
  const state = blake2b.create({ dkLen: size, key: exact(key, KEY_BYTES, "key") });
  for (const part of [utf8("memrelay/v1/" + label), ...parts]) {
    state.update(u32(part.length)).update(part);
  }
  return state.digest() as Bytes;
}

/** Returns the 32-byte key derived from `key` for a label and its parts. */
export function kdf(key: Uint8Array, label: string, ...parts: readonly Uint8Array[]): Bytes {
  return mac(32, key, label, ...parts);
}

const exchangeKeys = new Map<string, Bytes>();

/**
 * Returns the X25519 key of an Ed25519 public key.
 *
 * @throws {Invalid} `public_key`, for small-order, mixed-order and malformed keys.
 */
export function exchangePublic(publicKey: Uint8Array): Bytes {
  const name = toHex(exact(publicKey, KEY_BYTES, "public key"));
  let found = exchangeKeys.get(name);
  if (found === undefined) {
    if (!isUsablePoint(publicKey)) {
      throw new Invalid("public_key", "A public key is not a usable curve point.");
    }
    found = ed25519.utils.toMontgomery(publicKey) as Bytes;
    if (exchangeKeys.size >= POINTS_MAX) exchangeKeys.clear();
    exchangeKeys.set(name, found);
  }
  return found.slice();
}

function isUsablePoint(data: Uint8Array): boolean {
  try {
    const point = ed25519.Point.fromBytes(data, false);
    return !point.isSmallOrder() && point.isTorsionFree();
  } catch {
    return false;
  }
}

/** Returns the public key of a seed. */
export function publicKeyOf(seed: Uint8Array): Bytes {
  return ed25519.getPublicKey(seed) as Bytes;
}

/** Returns the X25519 secret of a seed, as libsodium converts it. */
export function exchangeSecretOf(seed: Uint8Array): Bytes {
  return ed25519.utils.toMontgomerySecret(seed) as Bytes;
}

/** Returns the X25519 public key of an X25519 secret. */
export function exchangePublicOf(secret: Uint8Array): Bytes {
  return x25519.getPublicKey(secret) as Bytes;
}

/** Returns the 64-byte detached signature of a message. */
export function sign(message: Uint8Array, seed: Uint8Array): Bytes {
  return ed25519.sign(message, seed) as Bytes;
}

/**
 * Returns whether a signature holds, by libsodium's equation.
 *
 * The library multiplies by the cofactor, and libsodium does not. The two agree when neither the
 * key nor the signature's point has a part of small order.
 */
export function verify(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  try {
    exchangePublic(publicKey);
    if (!ed25519.verify(signature, message, publicKey, { zip215: false })) return false;
    return ed25519.Point.fromBytes(signature.subarray(0, 32), false).isTorsionFree();
  } catch {
    return false;
  }
}

/** Seals with XChaCha20-Poly1305-IETF. */
export function aeadSeal(
  key: Uint8Array,
  nonce: Uint8Array,
  plaintext: Uint8Array,
  associated: Uint8Array,
): Bytes {
  return xchacha20poly1305(key, nonce, associated).encrypt(plaintext) as Bytes;
}

/**
 * Opens what `aeadSeal` sealed.
 *
 * @throws {Invalid} `aead`, when a byte of any argument is another.
 */
export function aeadOpen(
  key: Uint8Array,
  nonce: Uint8Array,
  sealed: Uint8Array,
  associated: Uint8Array,
): Bytes {
  try {
    return xchacha20poly1305(key, nonce, associated).decrypt(sealed) as Bytes;
  } catch (error) {
    throw new Invalid("aead", "Sealed bytes do not open.", { cause: error });
  }
}

/**
 * Returns the key of `crypto_box` between a public key and a secret, both X25519.
 *
 * @throws {Invalid} `exchange`, for a public key of small order.
 */
export function boxKey(publicKey: Uint8Array, secret: Uint8Array): Bytes {
  let shared: Uint8Array;
  try {
    shared = x25519.getSharedSecret(secret, publicKey);
  } catch (error) {
    throw new Invalid("exchange", "An exchange key is not usable.", { cause: error });
  }
  const sigma = words(utf8("expand 32-byte k"));
  const found = new Uint32Array(8);
  hsalsa(sigma, words(shared), new Uint32Array(4), found);
  return bytesOf(found);
}

// Words are little-endian in the cipher's definition, whatever the machine's are.
function words(data: Uint8Array): Uint32Array {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return Uint32Array.from({ length: data.length / 4 }, (_, at) => view.getUint32(4 * at, true));
}

function bytesOf(found: Uint32Array): Bytes {
  const data = new Uint8Array(4 * found.length);
  const view = new DataView(data.buffer);
  found.forEach((word, at) => view.setUint32(4 * at, word, true));
  return data;
}

/** Boxes with XSalsa20-Poly1305 under a key of `boxKey`. */
export function boxSeal(key: Uint8Array, nonce: Uint8Array, plaintext: Uint8Array): Bytes {
  return xsalsa20poly1305(key, nonce).encrypt(plaintext) as Bytes;
}

/**
 * Opens what `boxSeal` boxed.
 *
 * @throws {Invalid} `box`, when it does not open.
 */
export function boxOpen(key: Uint8Array, nonce: Uint8Array, box: Uint8Array): Bytes {
  try {
    return xsalsa20poly1305(key, nonce).decrypt(box) as Bytes;
  } catch (error) {
    throw new Invalid("box", "A box does not open.", { cause: error });
  }
}

/** Returns libsodium's sealed box of a plaintext to an X25519 key. */
export function sealedBox(recipient: Uint8Array, plaintext: Uint8Array): Bytes {
  const secret = randomBytes(KEY_BYTES);
  const sender = exchangePublicOf(secret);
  const nonce = hashOf(NONCE_BYTES, concat(sender, recipient));
  return concat(sender, boxSeal(boxKey(recipient, secret), nonce, plaintext));
}

/**
 * Opens a sealed box.
 *
 * @throws {Invalid} `box`, when it is too short or does not open.
 */
export function openSealedBox(box: Uint8Array, secret: Uint8Array): Bytes {
  if (box.length < SEALED_BOX_EXTRA_BYTES) throw new Invalid("box", "A box is too short.");
  const sender = box.subarray(0, KEY_BYTES);
  const nonce = hashOf(NONCE_BYTES, concat(sender, exchangePublicOf(secret)));
  return boxOpen(boxKey(sender, secret), nonce, box.subarray(KEY_BYTES));
}
