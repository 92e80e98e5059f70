// Turns errors into sentences for people; nothing of a key or a text is in one.

import {
  NotAuthenticated,
  RateLimited,
  ServerError,
  TransportError,
  UntrustedGrant,
  UntrustedRelayer,
} from "../../typescript/src/index.ts";
import { ProfileError } from "./profile.ts";
import { texts } from "./texts.ts";
import { PASSPHRASE_CHARACTERS_MIN, VaultError } from "./vault.ts";

/** Returns what to tell of an error. */
export function wordError(error: unknown): string {
  const t = texts.errors;
  if (error instanceof VaultError || error instanceof ProfileError) return wordOwn(error.message);
  if (error instanceof NotAuthenticated) return t.rejected;
  if (error instanceof RateLimited) return t.rateLimited;
  if (error instanceof TransportError) return t.network;
  if (error instanceof UntrustedRelayer || error instanceof UntrustedGrant) return t.untrusted(error.message);
  if (error instanceof ServerError) return error.reason;
  return error instanceof Error ? error.message : String(error);
}

function wordOwn(name: string): string {
  const own: Readonly<Record<string, string | ((min: number) => string)>> = texts.open.errors;
  const said = own[name] ?? name;
  return typeof said === "function" ? said(PASSPHRASE_CHARACTERS_MIN) : said;
}
