// Turns errors into sentences for people; nothing of a key or a text is in one.

import {
  Conflict,
  NotAllowed,
  NotAuthenticated,
  NotFound,
  NotOffered,
  QuotaExceeded,
  RateLimited,
  ServerError,
  TooLarge,
  TransportError,
  Unavailable,
  UntrustedGrant,
  UntrustedRelayer,
  UpgradeRequired,
} from "../../typescript/src/index.ts";
import { ProfileError } from "./profile.ts";
import { texts } from "./texts.ts";
import { PASSPHRASE_CHARACTERS_MIN, VaultError } from "./vault.ts";

/** Returns what to tell of an error. */
export function wordError(error: unknown): string {
  const t = texts.errors;
  if (error instanceof VaultError || error instanceof ProfileError) return wordOwn(error.message);
  if (error instanceof NotAuthenticated) return t.rejected;
  if (error instanceof RateLimited) return t.rateLimited(error.retryAfterS);
  if (error instanceof NotAllowed) return t.notAllowed(error.reason);
  if (error instanceof NotFound) return t.notFound;
  if (error instanceof Conflict) return t.conflict(error.reason);
  if (error instanceof QuotaExceeded) return t.quota;
  if (error instanceof TooLarge) return t.tooLarge(error.reason);
  if (error instanceof Unavailable) return t.unavailable;
  if (error instanceof NotOffered) return t.notOffered(error.reason);
  if (error instanceof UpgradeRequired) return t.upgrade;
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
