/** Remembers with the profile that the first argument names, which the Python client shares. */

import { Client } from "../src/index.ts";
import { FileTrustStore, loadProfile } from "../src/profile.ts";

const path = process.argv[2]!;
const profile = await loadProfile(path);
const client = new Client(profile, { trustStore: new FileTrustStore(path, profile.account_id) });
const { results } = await client.recall("Who prefers tea?");
await client.remember("Bert prefers coffee.");
await client.save();
console.log(JSON.stringify(results.map((one) => one.text)));
