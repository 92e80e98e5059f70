// Keeps keys in this browser, wrapped by a passphrase or a passkey, and never in another form.
//
// - scrypt stretches a passphrase; a passkey gives a secret of its own for this salt (WebAuthn PRF).
// - AES-256-GCM wraps under HKDF of either. What names the keys is authenticated with them.
// - Nothing here asks a network. A passkey's provider may keep the passkey elsewhere, not the keys.

import { scryptAsync } from "@noble/hashes/scrypt.js";

import type { Profile } from "./profile.ts";

const PLACE = "memrelay.console.keys";
const SCRYPT = { N: 2 ** 17, r: 8, p: 1, dkLen: 32, asyncTick: 20 };
export const PASSPHRASE_CHARACTERS_MIN = 12;

export interface Entry {
  readonly v: 1;
  readonly way: "passphrase" | "passkey";
  readonly label: string;
  readonly account: string;
  readonly salt: string;
  readonly nonce: string;
  readonly box: string;
  /** Names the passkey to the browser. */
  readonly credential?: string;
}

export class VaultError extends Error {
  constructor(readonly reason: "passphrase" | "passkey" | "passkey_missing" | "storage") {
    super(reason);
  }
}

/** Returns what is kept, without opening any of it. */
export function listEntries(): Entry[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(found) ? found.filter(isEntry) : [];
  } catch {
    return [];
  }
}

/** Takes one away, for good. */
export function removeEntry(entry: Entry): void {
  store(listEntries().filter((one) => one.box !== entry.box));
}

/** Keeps a profile under a passphrase. */
export async function keepUnderPassphrase(profile: Profile, passphrase: string, label: string): Promise<void> {
  const salt = random(16);
  await keep(profile, await stretch(passphrase, salt), { way: "passphrase", label, salt });
}

/** Keeps a profile under a new passkey of this site. */
export async function keepUnderPasskey(profile: Profile, label: string): Promise<void> {
  const salt = random(32);
  const credential = (await navigator.credentials
    .create({
      publicKey: {
        rp: { name: "memrelay console" },
        user: { id: random(32), name: label, displayName: label },
        challenge: random(32),
        pubKeyCredParams: [
          { type: "public-key", alg: -8 },
          { type: "public-key", alg: -7 },
          { type: "public-key", alg: -257 },
        ],
        authenticatorSelection: { residentKey: "preferred", userVerification: "required" },
        extensions: { prf: { eval: { first: salt } } },
      },
    })
    .catch(() => null)) as PublicKeyCredential | null;
  if (!credential) throw new VaultError("passkey");
  const id = new Uint8Array(credential.rawId);
  // Some authenticators give the secret only when they are asked a second time.
  const secret = secretOf(credential) ?? (await askPasskey(id, salt));
  await keep(profile, secret, { way: "passkey", label, salt, credential: id });
}

/** Opens what is kept under a passphrase. */
export async function openWithPassphrase(entry: Entry, passphrase: string): Promise<Profile> {
  return open(entry, await stretch(passphrase, fromBase64(entry.salt)), "passphrase");
}

/** Opens what is kept under a passkey. */
export async function openWithPasskey(entry: Entry): Promise<Profile> {
  const secret = await askPasskey(fromBase64(entry.credential ?? ""), fromBase64(entry.salt));
  return open(entry, secret, "passkey");
}

/** Returns whether this page may use passkeys: a browser has none for a bare address. */
export function hasPasskeys(): boolean {
  const isName = !/^[0-9.]+$|:/.test(location.hostname.replace(/[[\]]/g, ""));
  return isSecureContext && isName && "PublicKeyCredential" in window;
}

async function askPasskey(id: Uint8Array<ArrayBuffer>, salt: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const found = (await navigator.credentials
    .get({
      publicKey: {
        challenge: random(32),
        allowCredentials: [{ type: "public-key", id }],
        userVerification: "required",
        extensions: { prf: { eval: { first: salt } } },
      },
    })
    .catch(() => null)) as PublicKeyCredential | null;
  if (!found) throw new VaultError("passkey");
  const secret = secretOf(found);
  if (!secret) throw new VaultError("passkey_missing");
  return secret;
}

function secretOf(credential: PublicKeyCredential): Uint8Array<ArrayBuffer> | null {
  const first = credential.getClientExtensionResults().prf?.results?.first;
  if (!first) return null;
  return first instanceof ArrayBuffer
    ? new Uint8Array(first)
    : Uint8Array.from(new Uint8Array(first.buffer, first.byteOffset, first.byteLength));
}

async function stretch(passphrase: string, salt: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const typed = new TextEncoder().encode(passphrase.normalize("NFC"));
  return Uint8Array.from(await scryptAsync(typed, salt, SCRYPT));
}

interface Naming {
  way: Entry["way"];
  label: string;
  salt: Uint8Array<ArrayBuffer>;
  credential?: Uint8Array<ArrayBuffer>;
}

async function keep(profile: Profile, secret: Uint8Array<ArrayBuffer>, naming: Naming): Promise<void> {
  const nonce = random(12);
  const head = {
    v: 1 as const,
    way: naming.way,
    label: naming.label,
    account: profile.accountId,
    salt: toBase64(naming.salt),
    nonce: toBase64(nonce),
    ...(naming.credential ? { credential: toBase64(naming.credential) } : {}),
  };
  const key = await wrappingKey(secret, naming.salt);
  const sealed = await crypto.subtle.encrypt(
    { name: "AES-GCM", iv: nonce, additionalData: authenticated(head) },
    key,
    new TextEncoder().encode(JSON.stringify(profile)),
  );
  const entry: Entry = { ...head, box: toBase64(new Uint8Array(sealed)) };
  store([...listEntries().filter((one) => one.label !== entry.label || one.account !== entry.account), entry]);
}

async function open(entry: Entry, secret: Uint8Array<ArrayBuffer>, reason: "passphrase" | "passkey"): Promise<Profile> {
  const key = await wrappingKey(secret, fromBase64(entry.salt));
  try {
    const opened = await crypto.subtle.decrypt(
      { name: "AES-GCM", iv: fromBase64(entry.nonce), additionalData: authenticated(entry) },
      key,
      fromBase64(entry.box),
    );
    return JSON.parse(new TextDecoder().decode(opened)) as Profile;
  } catch {
    throw new VaultError(reason);
  }
}

async function wrappingKey(secret: Uint8Array<ArrayBuffer>, salt: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  const base = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveKey"]);
  return crypto.subtle.deriveKey(
    { name: "HKDF", hash: "SHA-256", salt, info: new TextEncoder().encode("memrelay/console/keys/v1") },
    base,
    { name: "AES-GCM", length: 256 },
    false,
    ["encrypt", "decrypt"],
  );
}

/** Returns what is authenticated beside the keys: all that an entry says of them. */
function authenticated(entry: Omit<Entry, "box">): Uint8Array<ArrayBuffer> {
  const { v, way, label, account, salt, nonce, credential } = entry;
  return new TextEncoder().encode(JSON.stringify([v, way, label, account, salt, nonce, credential ?? null]));
}

function store(entries: readonly Entry[]): void {
  try {
    localStorage.setItem(PLACE, JSON.stringify(entries));
  } catch {
    throw new VaultError("storage");
  }
}

function isEntry(value: unknown): value is Entry {
  if (typeof value !== "object" || value === null) return false;
  const entry = value as Record<string, unknown>;
  const texts = ["label", "account", "salt", "nonce", "box"];
  return entry["v"] === 1 && (entry["way"] === "passphrase" || entry["way"] === "passkey")
    && texts.every((name) => typeof entry[name] === "string");
}

function random(bytes: number): Uint8Array<ArrayBuffer> {
  return crypto.getRandomValues(new Uint8Array(bytes));
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
