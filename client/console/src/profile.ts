// Reads the keys that people bring: a profile file, or a recovery key and an account.

/** What a client needs to act: the members of a profile file that matter in a browser. */
export interface Profile {
  readonly accountId: string;
  /** The Ed25519 seed, in hex. */
  readonly privateKey: string;
  /** The relayer's public key that is pinned, in hex; null takes the one that answers first. */
  readonly relayerKey: string | null;
  readonly namespace: string;
}

export class ProfileError extends Error {}

const ACCOUNT = /^0x[0-9a-f]{64}$/;
const KEY = /^[0-9a-f]{64}$/;
const FILE_CHARACTERS_MAX = 256 * 1024;

/** Returns the profile of a file that `memrelay` wrote, as JSON or TOML. */
export function parseProfile(text: string): Profile {
  if (text.length > FILE_CHARACTERS_MAX) throw new ProfileError("profile_form");
  const found = text.trimStart().startsWith("{") ? readJson(text) : readToml(text);
  const accountId = found["account_id"];
  const privateKey = found["private_key"];
  const relayerKey = found["relayer_key"] ?? null;
  const namespace = found["namespace"] ?? "default";
  if (typeof accountId !== "string" || !ACCOUNT.test(accountId)) throw new ProfileError("profile_account");
  if (typeof privateKey !== "string" || !KEY.test(privateKey)) throw new ProfileError("profile_key");
  if (relayerKey !== null && (typeof relayerKey !== "string" || !KEY.test(relayerKey))) {
    throw new ProfileError("profile_relayer");
  }
  return { accountId, privateKey, relayerKey, namespace: typeof namespace === "string" ? namespace : "default" };
}

/** Returns an account's id as somebody typed it. */
export function parseAccountId(text: string): string {
  const tidy = text.trim().toLowerCase();
  const whole = tidy.startsWith("0x") ? tidy : `0x${tidy}`;
  if (!ACCOUNT.test(whole)) throw new ProfileError("account_form");
  return whole;
}

function readJson(text: string): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(text);
    if (typeof found === "object" && found !== null && !Array.isArray(found)) return found as Record<string, unknown>;
  } catch {
    // Said below; the text itself is repeated nowhere.
  }
  throw new ProfileError("profile_form");
}

/** Reads the plain lines `name = "value"`, which are all that a profile's own members need. */
function readToml(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const line of text.split(/\r?\n/)) {
    if (line.trimStart().startsWith("[")) break;
    const match = /^\s*([a-z_]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?$/.exec(line);
    if (match?.[1]) found[match[1]] = match[2] ?? match[3];
  }
  return found;
}
