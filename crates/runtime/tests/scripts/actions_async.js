// An asynchronous main: jobs of one process run at once.
import fs from 'node:fs';
import process from 'node:process';

const waiting = [];

export async function main(payload) {
  if (payload === null || typeof payload !== 'object' || !('do' in payload)) return payload;
  return await actions[payload.do](payload);
}

class ValueError extends Error {}

const actions = {
  async meet({ name, count }) {
    console.log('met', name);
    gristmill.progress({ message: name, fraction: 0.5 });
    await new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === count) waiting.splice(0).forEach((other) => other());
    });
    console.log('left', name);
    return name;
  },
  pid() { return process.pid; },
  async job() {
    await null;
    return gristmill.job();
  },
  async wait({ here, file }) {
    fs.writeFileSync(here, '');
    while (!fs.existsSync(file)) await new Promise((resolve) => setTimeout(resolve, 5));
    return 'waited';
  },
  async print_and({ text, then }) {
    console.log(text);
    process.stdout.write('and no line feed');
    await null;
    return await actions[then]({});
  },
  async raise({ message }) {
    await null;
    throw new ValueError(message);
  },
  hang() { return new Promise(() => { setInterval(() => {}, 1000); }); },
  exit() { process.kill(process.pid, 'SIGKILL'); for (;;); },
};
