/** One life with the package as it is installed: a key is let in, remembers, recalls and forgets. */

import assert from "node:assert/strict";

import { Client, finishJoining, newProfile, readJoinRequests, requestToJoin } from "memrelay";
import { withMemory } from "memrelay/ai";
import { verifyAccount } from "memrelay/verification";

const url = process.argv[2];
const owner = new Client(newProfile(url));
await owner.createAccount();

const joining = await requestToJoin(url, { label: "laptop" });
await owner.admit(readJoinRequests(joining.request)[0], { namespaces: ["team"] });
const { profile } = await finishJoining(joining);
const laptop = new Client(profile);

const { id } = await laptop.remember("Anna prefers tea.");
const { results } = await laptop.recall("What does Anna drink?");
assert.deepEqual([results.length, results[0].text], [1, "Anna prefers tea."]);
assert.equal((await laptop.forget(id)).erased, true);
assert.equal((await laptop.recall("What does Anna drink?")).total, 0);
assert.deepEqual((await verifyAccount(owner)).findings, []);
assert.equal(typeof withMemory, "function");
console.log("lived");
