/** Verifies the account of the profile that the first argument names, and prints what was found. */

import { Client } from "../src/index.ts";
import { loadProfile } from "../src/profile.ts";
import { verifyAccount } from "../src/verification/verifying.ts";

const client = new Client(await loadProfile(process.argv[2]!));
console.log(JSON.stringify(await verifyAccount(client, { openAll: true })));
