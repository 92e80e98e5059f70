// Builds the console: one page that pins one script and one style, for both wheels.
//
//   node build.mjs
//
// - The same sources give the same bytes, so that anybody can compare a relayer's page with theirs.
// - Names hold a hash of what is in a file: caches may keep them for good.

import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const targets = [
  join(root, "relayer/http/console-files"),
  join(root, "client/memrelay/console-files"),
];

const built = await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.ts", style: "src/style.css" },
  outdir: "out",
  bundle: true,
  write: false,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  // The client's sources are bundled from beside this folder; their libraries are found here.
  nodePaths: [join(here, "node_modules")],
});

const digest = (bytes, algorithm, encoding) =>
  createHash(algorithm).update(bytes).digest(encoding);
const files = new Map();
const place = (name, bytes) => {
  const extension = extname(name);
  const stem = name.slice(0, -extension.length);
  const unique = `${stem}-${digest(bytes, "sha256", "hex").slice(0, 16)}${extension}`;
  files.set(unique, bytes);
  return { address: `console/${unique}`, integrity: `sha384-${digest(bytes, "sha384", "base64")}` };
};

const [script, style] = [".js", ".css"].map((extension) => {
  const output = built.outputFiles.find((file) => extname(file.path) === extension);
  return place(`${extension === ".js" ? "console" : "style"}${extension}`, Buffer.from(output.contents));
});
const icon = place("icon.svg", await readFile(join(here, "src/icon.svg")));
const page = (await readFile(join(here, "src/index.html"), "utf8"))
  .replace("{icon}", icon.address)
  .replace("{style}", style.address)
  .replace("{style-integrity}", style.integrity)
  .replace("{script}", script.address)
  .replace("{script-integrity}", script.integrity);
files.set("index.html", Buffer.from(page));

for (const target of targets) {
  await rm(target, { recursive: true, force: true });
  await mkdir(target, { recursive: true });
  for (const [name, bytes] of files) await writeFile(join(target, name), bytes);
}
console.log(`console: the page has SHA-256 ${digest(Buffer.from(page), "sha256", "hex")}`);
