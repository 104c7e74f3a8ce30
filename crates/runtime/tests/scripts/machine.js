// What the random machine runs, as machine.py does.
import fs from 'node:fs';
import process from 'node:process';

const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

export function main(payload) {
  fs.appendFileSync(payload.file, `${payload.id} ${process.pid}\n`);
  console.log('begin', payload.id);
  if (payload.do === 'sleep') pause(payload.ms);
  if (payload.do === 'fail') throw new Error(`job ${payload.id} fails`);
  if (payload.do === 'crash') {
    process.kill(process.pid, 'SIGKILL');
    for (;;);
  }
  if (payload.do === 'hang') pause(1e6);
  console.log('end', payload.id);
  return payload.id;
}
