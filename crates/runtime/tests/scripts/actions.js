// Does what the payload says, as actions.py does.
import fs from 'node:fs';
import process from 'node:process';
import { Buffer } from 'node:buffer';
import { execFileSync, spawn } from 'node:child_process';

const shared = { calls: 0 };

class Busy extends Error {
  retry_after = 1.5;
}

class Hopeless extends Error {
  permanent = true;
}

class ValueError extends Error {}

export function main(payload) {
  if (payload === null || typeof payload !== 'object' || !('do' in payload)) return payload;
  return actions[payload.do](payload);
}

const frame = Buffer.from([16, 0, 0, 0, 19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

const actions = {
  raise({ message }) { throw new ValueError(message); },
  raise_busy() { throw new Busy('later'); },
  raise_hopeless() { throw new Hopeless('never'); },
  exit() { process.kill(process.pid, 'SIGKILL'); for (;;); },
  // A first signal may only remove a handler of the runtime's own.
  segfault() { for (;;) process.kill(process.pid, 'SIGSEGV'); },
  hang() { for (;;); },
  hang_in_native_code() { return /^(a+)+$/.test('a'.repeat(60) + 'b'); },
  progress(payload) {
    gristmill.progress(3, 12, 'at the gate');
    return actions.block(payload);
  },
  block({ fifo, here, say }) {
    if (say !== undefined) console.log(say);
    if (here !== undefined) fs.writeFileSync(here, '');
    return fs.readFileSync(fifo, 'utf8');
  },
  terminate(payload) {
    actions.block(payload);
    process.kill(process.pid, 'SIG' + payload.signal);
    for (;;);
  },
  job() {
    return gristmill.job();
  },
  flow() {
    try {
      return gristmill.job().flow;
    } catch (error) {
      return error.message;
    }
  },
  print_and({ text, then }) {
    console.log(text);
    process.stdout.write('and no line feed');
    return actions[then]({});
  },
  print({ text }) {
    console.log(text);
    console.error('to stderr');
    return 'printed';
  },
  flood({ bytes }) {
    const line = 'x'.repeat(65535);
    const before = process.memoryUsage().rss;
    for (let at = 0; at < bytes; at += 65536) console.log(line);
    return process.memoryUsage().rss - before;
  },
  child() {
    execFileSync('sh', ['-c', 'echo from the child; echo and its stderr >&2'], { stdio: 'inherit' });
    return 'done';
  },
  forge_stdout() {
    process.stdout.write(frame);
    fs.writeSync(1, '\n{"failed":{"index":0}}\n');
    return 'honest';
  },
  forge_descriptors() {
    for (let fd = 3; fd < 64; fd++) {
      try {
        // The runtime's own pipes do not block; a write to them would only crash it.
        const flags = parseInt(/flags:\s*(\d+)/.exec(fs.readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))[1], 8);
        if (fs.readlinkSync(`/proc/self/fd/${fd}`).startsWith('pipe:') && !(flags & 0o4000) && (flags & 3) === 1) {
          fs.appendFileSync(`/proc/self/fd/${fd}`, frame);
        }
      } catch { /* not open, or the reading end */ }
    }
    return 'forged';
  },
  forge_from_child() {
    execFileSync(
      'sh',
      ['-c', 'for fd in 3 4 5 6 7 8 9; do eval "echo garbage-garbage-garbage >&$fd" 2>/dev/null; done; true'],
      { stdio: 'inherit' },
    );
    return 'honest';
  },
  nan() { return { a: [NaN] }; },
  infinity() { return -Infinity; },
  surrogate() { return 'a\ud800b'; },
  nothing() {},
  unserialisable() { return () => 10; },
  circular() { const value = []; value.push(value); return value; },
  huge({ bytes }) { return 'x'.repeat(bytes); },
  count() { shared.calls++; return shared; },
  pid() { return process.pid; },
  spawn() {
    const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
    return [process.pid, child.pid];
  },
  sleep({ ms }) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    return ms;
  },
};
