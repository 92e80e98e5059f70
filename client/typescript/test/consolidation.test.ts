/** Consolidation by a real relayer, whose address is in MEMRELAY_TEST_URL. */

import assert from "node:assert/strict";
import test from "node:test";

import type { Client, Consolidation } from "../src/index.ts";
import { foundAccount } from "./accounts.ts";

for (const custody of ["sealed", "managed"] as const) {
  test(`memories of a ${custody} account that say the same are merged, and taken apart`, async () => {
    const { client } = await foundAccount(custody);
    const older = await client.remember("Anna prefers green tea in the morning.");
    const newer = await client.remember("Anna really prefers green tea in the morning.");
    const plan = await client.planConsolidation();
    const merge = { action: "merge", memory_id: newer.id, other_ids: [older.id] };
    assert.deepEqual(
      plan.actions.map(({ action, memory_id, other_ids }) => ({ action, memory_id, other_ids })),
      [merge],
    );
    const run = await finish(client, await client.consolidate());
    assert.deepEqual([run.merged, run.actor], [1, client.publicKey]);
    const { actions } = await client.consolidation(run.id);
    assert.deepEqual(
      actions.map((one) => [one.memory_id, one.undone]),
      [[newer.id, null]],
    );
    assert.equal((await client.get(older.id)).superseded_by, newer.id);
    const undone = await client.undoConsolidation(run.id);
    assert.deepEqual([undone.undone, undone.skipped, undone.state], [1, 0, "undone"]);
    assert.equal((await client.get(older.id)).state, "active");
    assert.equal((await client.undoConsolidation(run.id)).undone, 0);
    assert.equal((await client.consolidation(run.id)).actions[0]?.undone, "undone");
    const { consolidations } = await client.consolidations({ namespace: "default" });
    assert.deepEqual(
      consolidations.map((one) => one.id),
      [run.id],
    );
  });
}

/** Waits until a run is done. */
async function finish(client: Client, begun: Consolidation): Promise<Consolidation> {
  let run = begun;
  while (run.state !== "done") {
    await new Promise((later) => setTimeout(later, 100));
    run = await client.consolidation(run.id);
    assert.ok(["queued", "running", "done"].includes(run.state), run.state);
  }
  return run;
}
