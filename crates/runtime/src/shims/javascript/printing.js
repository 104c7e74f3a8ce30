  // --- what jobs print ---

  // A job that runs. What it prints goes into the output pipe at once, up to its limit; the rest is counted.
  class Job {
    constructor(number, frame) {
      this.number = number;
      this.frame = frame;
      this.begunAt = 0;
      this.endedAt = 0;
      this.saidAt = -Infinity;
      // The end of its time, where it runs beside others; and how much of it others took.
      this.dueAt = 0;
      this.excusedMs = 0;
      this.timer = null;
      this.room = hello.log_bytes_max;
      this.dropped = 0;
      this.isSilent = true;
      this.isAnswered = false;
    }

    print(kind, chunk, encoding) {
      this.isSilent = false;
      if (this.room === 0) {
        this.dropped += typeof chunk === 'string' ? Buffer.byteLength(chunk, encoding) : chunk.length;
        return;
      }
      const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
      const kept = Math.min(bytes.length, this.room);
      for (let at = 0; at < kept; at += RECORD_BYTES_MAX) {
        writeRecord(kind, this.number, bytes.subarray(at, Math.min(at + RECORD_BYTES_MAX, kept)));
      }
      this.room -= kept;
      if (bytes.length > kept) {
        this.dropped += bytes.length - kept;
        // That something is missing shows even if the job does not live to say how much.
        this.sayDropped();
      }
    }

    sayDropped() {
      const bytes = Buffer.alloc(8);
      bytes.writeBigUInt64LE(BigInt(this.dropped));
      writeRecord(DROPPED, this.number, bytes);
    }
  }

  const none = Buffer.alloc(0);
  const record = Buffer.alloc(RECORD_HEAD_BYTES + RECORD_BYTES_MAX);
  record.write('\0GRST', 0, 'latin1');
  // A description of the output pipe that is our own, whatever the script does to its standard output.
  const output = fs.openSync('/dev/fd/1', 'w');
  const writeRecord = (kind, number, bytes) => {
    record[13] = kind;
    record.writeUInt32LE(number, 14);
    record.writeUInt32LE(bytes.length, 18);
    record.set(bytes, RECORD_HEAD_BYTES);
    fs.writeSync(output, record, 0, RECORD_HEAD_BYTES + bytes.length);
  };

  let running = null;
  let contexts = null;
  const currentJob = () => contexts?.getStore() ?? running;

  const captureOutput = () => {
    for (const [stream, fd] of [[process.stdout, 1], [process.stderr, 2]]) {
      stream.write = (chunk, encoding, done) => {
        const callback = typeof encoding === 'function' ? encoding : done;
        const job = currentJob();
        if (job) {
          job.print(fd === 1 ? PRINTED : PRINTED_TO_ERROR, chunk, typeof encoding === 'string' ? encoding : 'utf8');
        } else {
          fs.writeSync(fd, chunk);
        }
        if (callback) queueMicrotask(callback);
        return true;
      };
    }
    const captured = new Console({ stdout: process.stdout, stderr: process.stderr });
    for (const method of Object.keys(captured)) {
      if (typeof captured[method] === 'function') globalThis.console[method] = captured[method].bind(captured);
    }
  };

