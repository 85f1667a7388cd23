/* Builds the page: one script, one stylesheet, an icon, with digests in their names, and the HTML with these names.

   node build.mjs [DIRECTORY]   writes to DIRECTORY, default: static beside the modules of the server (../static)
   node build.mjs --tests       writes the tests of the model to build/tests instead

   Reproducible: equal sources and lock file give equal bytes, without times, paths or data of the machine. */

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const common = { absWorkingDir: here, bundle: true, format: "esm", target: "es2022", charset: "utf8", logLevel: "warning" };

function named(name, bytes) {
  const dot = name.lastIndexOf(".");
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  return `${name.slice(0, dot)}-${digest}${name.slice(dot)}`;
}

async function page(target) {
  const { outputFiles } = await build({
    ...common,
    entryPoints: { page: "src/main.tsx", style: "src/styles/main.css" },
    outdir: "out",
    jsx: "automatic",
    jsxImportSource: "preact",
    minify: true,
    legalComments: "linked",
    write: false,
  });
  rmSync(target, { recursive: true, force: true });
  mkdirSync(join(target, "assets"), { recursive: true });
  const names = {};
  const put = (key, name, bytes) => {
    names[key] = named(name, bytes);
    writeFileSync(join(target, "assets", names[key]), bytes);
  };
  for (const file of outputFiles) {
    const name = file.path.slice(file.path.lastIndexOf("/") + 1);
    if (name.endsWith(".js")) {
      put("script", name, file.contents);
    } else if (name.endsWith(".css")) {
      put("style", name, file.contents);
    }
  }
  put("icon", "icon.svg", readFileSync(join(here, "src/icon.svg")));
  writeFileSync(join(target, "licences.txt"), licences());
  const html = readFileSync(join(here, "src/index.html"), "utf8");
  writeFileSync(join(target, "index.html"), html.replace(/@(\w+)@/g, (_, key) => names[key]));
}

/** Licences of the bundled packages, which require their inclusion. */
function licences() {
  const found = ["preact", "@preact/signals", "@preact/signals-core"].map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
  });
  return found.join("\n----\n\n");
}

async function tests(target) {
  rmSync(target, { recursive: true, force: true });
  const sources = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({ ...common, entryPoints: sources.map((name) => `test/${name}`), outdir: target, platform: "node", outExtension: { ".js": ".mjs" } });
}

const [argument] = process.argv.slice(2);
await (argument === "--tests" ? tests(join(here, "build/tests")) : page(resolve(argument ?? join(here, "../static"))));
