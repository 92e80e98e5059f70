/**
 * Settings of a client: the members of a profile file.
 *
 * Not here: reading files and the environment (`profile.ts`, for Node, Deno and Bun).
 *
 * Source: client/README.md, of the Python client's profile.
 */

import { ConfigError, Invalid } from "./errors.ts";
import { accountBytes, Identity, publicKeyBytes } from "./sealed/keys.ts";
import { normaliseNamespace } from "./sealed/names.ts";

/** Whether requests carry the account's keys: `auto` asks once, and stays with sealed for good. */
export type Custody = "auto" | "sealed" | "managed";

/** Other words for words of a query: `{"k8s": ["kubernetes"]}`. */
export type Aliases = Readonly<Record<string, readonly string[]>>;

/** The members of a profile, as its file has them. */
export interface Profile {
  readonly url: string;
  readonly account_id: string;
  readonly private_key: string;
  readonly namespace?: string;
  /** The relayer's public key. Without it, the first one that answers is pinned. */
  readonly relayer_key?: string | null;
  readonly custody?: Custody;
  /** Plain http beyond this machine. */
  readonly allow_insecure?: boolean;
  readonly aliases?: Aliases;
}

/** A profile that was checked. */
export interface Settings {
  /** The relayer's URL, without a slash at its end. */
  readonly url: string;
  /** The path of that URL, which a signature leaves out. */
  readonly pathPrefix: string;
  readonly accountId: string;
  readonly account: Uint8Array;
  readonly identity: Identity;
  readonly namespace: string;
  readonly relayerKey: Uint8Array | null;
  readonly custody: Custody;
  readonly aliases: Aliases;
}

const ALIASES_MAX = 64;
const ALIAS_WORDS_MAX = 16;
const ALIAS_CHARACTERS_MAX = 128;

/**
 * Returns the settings of a profile.
 *
 * @throws {ConfigError} a value is missing or malformed, or the URL is plain http beyond this
 *   machine; the message repeats no key.
 */
export function checkProfile(profile: Profile, identity?: Identity): Settings {
  const url = checkUrl(profile.url, profile.allow_insecure ?? false);
  const custody = profile.custody ?? "auto";
  if (!["auto", "sealed", "managed"].includes(custody)) {
    throw new ConfigError("Custody is auto, sealed or managed.");
  }
  checkAliases(profile.aliases ?? {});
  try {
    const namespace = profile.namespace ?? "default";
    normaliseNamespace(namespace);
    return {
      url: url.origin + url.pathname.replace(/\/$/, ""),
      pathPrefix: url.pathname.replace(/\/$/, ""),
      accountId: profile.account_id,
      account: accountBytes(profile.account_id),
      identity: identity ?? Identity.fromHex(profile.private_key),
      namespace,
      relayerKey: profile.relayer_key == null ? null : publicKeyBytes(profile.relayer_key),
      custody,
      aliases: profile.aliases ?? {},
    };
  } catch (error) {
    if (error instanceof Invalid) throw new ConfigError(error.message);
    throw error;
  }
}

/**
 * Returns a relayer's URL.
 *
 * @throws {ConfigError} it is no http(s) URL, or plain http beyond this machine.
 */
export function checkUrl(text: string, allowInsecure: boolean): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new ConfigError("The relayer's URL is malformed.");
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") {
    throw new ConfigError("The relayer's URL begins with https:// or http://.");
  }
  if (url.search || url.hash || url.username || url.password) {
    throw new ConfigError("The relayer's URL has no query, fragment or password.");
  }
  if (url.protocol === "http:" && !allowInsecure && !isLoopback(url.hostname)) {
    throw new ConfigError(
      "Plain http would carry your memories readably; use https, or allow it explicitly.",
    );
  }
  return url;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/**
 * Checks other words for words of a query.
 *
 * @throws {ConfigError} they are too many, too long or of another form.
 */
export function checkAliases(aliases: Aliases): void {
  const isFit = Object.entries(aliases).every(
    ([name, others]) =>
      Array.isArray(others) &&
      others.length >= 1 &&
      others.length <= ALIAS_WORDS_MAX &&
      [name, ...others].every(isAlias),
  );
  if (!isFit || Object.keys(aliases).length > ALIASES_MAX) {
    throw new ConfigError(
      `aliases gives up to ${ALIASES_MAX} words a list of 1 to ${ALIAS_WORDS_MAX} other words, ` +
        `each of 1 to ${ALIAS_CHARACTERS_MAX} whole characters.`,
    );
  }
}

function isAlias(word: unknown): boolean {
  if (typeof word !== "string" || /\p{Cs}/u.test(word)) return false;
  const size = [...word].length;
  return size >= 1 && size <= ALIAS_CHARACTERS_MAX;
}
