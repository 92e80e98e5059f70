/** Writes an archive with the profile that is named, or tells what another client's holds. */

import { openAsBlob } from "node:fs";
import { writeFile } from "node:fs/promises";

import { accountBytes, Client, exportArchive, Identity, openArchive } from "../src/index.ts";
import { loadProfile } from "../src/profile.ts";

const [action, path, file] = process.argv.slice(2);
const profile = await loadProfile(path);
if (action === "write") {
  await writeFile(file!, exportArchive(new Client(profile)));
} else {
  const identity = Identity.fromHex(profile.private_key);
  const blob = await openAsBlob(file!);
  const archive = await openArchive(blob, identity, accountBytes(profile.account_id));
  console.log(JSON.stringify(archive.counts));
}
