/**
 * Signed requests: the headers that prove who asks, for which account, when, and for what.
 *
 * - Every send has a new nonce and time, so a request that is sent again is signed again.
 * - The signature covers the path as the relayer sees it: without the prefix of a public URL.
 *
 * Source: SPEC.md §5.
 */

import { type Bytes, toHex, utf8 } from "./bytes.ts";
import type { Identity } from "./sealed/keys.ts";
import { randomUuid, sha256 } from "./sealed/primitives.ts";

/** What a request's signature covers; `target` is the path and query. */
export interface SignedRequest {
  readonly timestampS: number;
  readonly method: string;
  readonly target: string;
  readonly body: Uint8Array;
  readonly nonce: string;
  readonly accountId: string;
}

/** Returns the text that a request's signature covers. */
export function makeSignedText(request: SignedRequest): Bytes {
  const { timestampS, method, target, body, nonce, accountId } = request;
  return utf8(`${timestampS}.${method}.${target}.${toHex(sha256(body))}.${nonce}.${accountId}`);
}

/** Returns the headers that sign a request, for one send. */
export function signRequest(
  identity: Identity,
  request: Omit<SignedRequest, "nonce">,
): Record<string, string> {
  const nonce = randomUuid();
  return {
    "x-public-key": identity.publicKeyHex,
    "x-signature": toHex(identity.sign(makeSignedText({ ...request, nonce }))),
    "x-timestamp": String(request.timestampS),
    "x-nonce": nonce,
    ...(request.accountId && { "x-account-id": request.accountId }),
  };
}
