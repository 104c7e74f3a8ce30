// The same as machine.js with an asynchronous main.
import fs from 'node:fs';
import process from 'node:process';

export async function main(payload) {
  fs.appendFileSync(payload.file, `${payload.id} ${process.pid}\n`);
  console.log('begin', payload.id);
  if (payload.do === 'sleep') await new Promise((resolve) => setTimeout(resolve, payload.ms));
  if (payload.do === 'fail') throw new Error(`job ${payload.id} fails`);
  if (payload.do === 'crash') {
    // Half of them end the process by themselves.
    if (payload.id % 2) process.exit(7);
    process.kill(process.pid, 'SIGKILL');
    for (;;);
  }
  if (payload.do === 'hang') await new Promise((resolve) => setTimeout(resolve, 1e6));
  console.log('end', payload.id);
  return payload.id;
}
