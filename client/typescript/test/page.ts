/** Reads every vector in a browser's page, and posts what came of it to where the page is from. */

import { checkVector } from "./vectors.ts";

async function run(): Promise<{ passed: number; failures: string[] }> {
  const names = (await (await fetch("/vectors")).json()) as string[];
  const failures: string[] = [];
  for (const name of names) {
    const problem = await checkVector(await (await fetch(`/vectors/${name}`)).text());
    if (problem !== null) failures.push(`${name}: ${problem}`);
  }
  return { passed: names.length - failures.length, failures };
}

run().then(
  (result) => fetch("/result", { method: "POST", body: JSON.stringify(result) }),
  (error: unknown) =>
    fetch("/result", {
      method: "POST",
      body: JSON.stringify({ passed: 0, failures: [String(error)] }),
    }),
);
