// The floor for a Node script: `floor.mjs INPUT OUTPUT` runs the same function over the same lines, alone.
// No queue, no store, no second process: parse, call, serialise, write, and one fsync at the end.
import { closeSync, createReadStream, fsyncSync, openSync, writeSync } from "node:fs";
import { main } from "./identity.mjs";

const PIECE_CHARACTERS = 1 << 20;
const output = openSync(process.argv[3], "w");
let rest = "";
let ready = "";
for await (const piece of createReadStream(process.argv[2], { encoding: "utf8", highWaterMark: 1 << 20 })) {
  const lines = (rest + piece).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    ready += JSON.stringify(main(JSON.parse(line))) + "\n";
  }
  if (ready.length >= PIECE_CHARACTERS) {
    writeSync(output, ready);
    ready = "";
  }
}
writeSync(output, ready);
fsyncSync(output);
closeSync(output);
