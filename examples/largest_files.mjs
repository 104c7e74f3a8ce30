// The largest files below folders.
//
//     gristmill run examples/largest_files.mjs --input folders.jsonl --output largest.jsonl
//
// An item is the path of a folder. It spawns one child, which reads that folder and spawns a sibling
// for each folder in it, recursively. All of them are children of the item, which finalizes with their
// outcomes. Unreadable folders are counted and skipped.

import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const LARGEST = 3;

const largest = (files) => files.sort((a, b) => b.bytes - a.bytes).slice(0, LARGEST);

export function main(payload) {
  if (typeof payload === 'string') {
    // With `collect`, finalize also gets the outcomes of failed children.
    return gristmill.spawn({ children: [{ folder: payload }], on_failure: 'collect' });
  }
  const entries = readdirSync(payload.folder, { withFileTypes: true });
  const path = (entry) => join(payload.folder, entry.name);
  const files = entries.filter((entry) => entry.isFile()).map(path);
  const folders = entries.filter((entry) => entry.isDirectory()).map(path);
  return gristmill.done(
    largest(files.map((file) => ({ file, bytes: lstatSync(file).size }))),
    { siblings: folders.map((folder) => ({ folder })) },
  );
}

export function finalize(folder, memo, outcomes) {
  const read = outcomes.filter((outcome) => outcome.state === 'completed');
  return {
    largest: largest(read.flatMap((outcome) => outcome.value)),
    folders: read.length,
    unread: outcomes.length - read.length,
  };
}
