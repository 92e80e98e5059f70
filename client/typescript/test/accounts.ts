/** New accounts of the relayer that MEMRELAY_TEST_URL names. */

import assert from "node:assert/strict";

import { Client, newProfile, type Profile } from "../src/index.ts";

export const url = process.env["MEMRELAY_TEST_URL"] ?? "";
if (url === "") throw new Error("MEMRELAY_TEST_URL names no relayer.");

/** Returns the owner's client of a new account, and its profile. */
export async function foundAccount(
  custody: "sealed" | "managed",
): Promise<{ client: Client; profile: Profile }> {
  const profile = newProfile(url);
  const client = new Client(profile);
  const answer = await client.createAccount({ custody });
  assert.equal(answer.custody, custody);
  return { client, profile };
}
