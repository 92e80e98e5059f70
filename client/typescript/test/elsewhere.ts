/** A page of another origin than the relayer's uses a sealed account; another relayer lets it not. */

import { Client, newProfile, NotFound, TransportError } from "../src/index.ts";

const asked = new URLSearchParams(location.search);

async function run(): Promise<string[]> {
  const failures: string[] = [];
  const check = (what: string, holds: boolean): void => void (holds || failures.push(what));
  const client = new Client(newProfile(asked.get("relayer")!));
  await client.createAccount();
  const { id } = await client.remember("Anna prefers tea.", { tags: ["drinks"] });
  const { results } = await client.recall("What does Anna drink?");
  check("recall", results[0]?.text === "Anna prefers tea.");
  await client.edit(id, { text: "Anna prefers coffee." });
  const events = [];
  for await (const event of client.events({ after: 0, follow: false })) events.push(event.type);
  check("events", events.includes("memory.edited"));
  check("forget", (await client.forget(id)).erased);
  const absent = await client.get(id).catch((error: unknown) => error);
  check("a typed error with its request's id", absent instanceof NotFound && !!absent.requestId);
  check("receipts", (await client.receipts()).length >= 4);
  const closed = new Client(newProfile(asked.get("closed")!), { attemptsMax: 1 });
  const refused = await closed.createAccount().catch((error: unknown) => error);
  check("a relayer without a list", refused instanceof TransportError);
  return failures;
}

run()
  .catch((error: unknown) => [String(error)])
  .then((failures) =>
    fetch("/result", {
      method: "POST",
      body: JSON.stringify({ passed: failures.length === 0 ? 1 : 0, failures }),
    }),
  );
