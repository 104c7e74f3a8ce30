  // --- flows ---
  //
  // Scripts and the package for Node share this file and `memo.js`: each is text within a function that has BaseError, Buffer,
  // checkNames, describe, digest, inspect, MAY_BE_INEXACT, mark and newSeed (`flow-scripts.js`, `node/lib/flow/engine.ts`).
  //
  // An instance runs from its beginning each time that something has ended for which it waits. Steps that have ended give their
  // kept outcomes; then the instance goes on, and answers with its value or with what it waits for next. All promises of a flow
  // are settled here, in the order of the memo, so that its code goes the same way each time.

  const ofEvent = { name: 'an event', names: ['timeout'] };
  const ofLocal = { name: 'flow.local', names: ['name', 'key'] };

  const ignore = () => {};
  const asIs = (value) => value;
  // A script may replace the global one.
  const whenIdle = globalThis.setImmediate ?? ((later) => (task) => later(task, 0))(globalThis.setTimeout);

  // Instances whose code is running. Some of their promises fail before the code awaits them.
  let instancesRunning = 0;

  // What an instance answers that waits: the children that it spawns and what it keeps, as JSON.
  class Suspension {
    constructor(text) { this.text = text; }
  }

  // A step, to be awaited.
  class FlowPromise extends Promise {
    #step = '';
    #isAwaited = false;
    #isRaced = false;
    // The races that it has won.
    #won = [];

    static get [Symbol.species]() { return Promise; }

    // One that is settled from outside. Nobody has to handle its failure before it is awaited.
    static ofStep(step) {
      let settled;
      const promise = new FlowPromise((resolve, reject) => { settled = { resolve, reject }; });
      Promise.prototype.then.call(promise, undefined, ignore);
      promise.#step = step;
      return { promise, ...settled };
    }

    get step() { return this.#step; }

    get isAwaited() { return this.#isAwaited || this.#isRaced; }

    // Whether the code gets its value. A race alone gives it to nobody.
    get isRead() { return this.#isAwaited || this.#won.some((race) => race.isRead); }

    // What a race awaits, which says whether it has won.
    inRace(race) {
      const then = (resolve, reject) => {
        this.#isRaced = true;
        return super.then(resolve, reject);
      };
      return { then, win: () => this.#won.push(race) };
    }

    then(...handlers) {
      this.#isAwaited = true;
      return super.then(...handlers);
    }
  }

  const checkText = (what, value) => {
    if (typeof value === 'string' && value !== '' && !value.startsWith('@') && !value.includes('\0')) return value;
    throw new FlowError(`${what} is ${inspect(value)}: give text that does not begin with @`);
  };

  // The options of a call, which are its last argument.
  const optionsOf = (call, options, more) => {
    if (more.length > 0 || typeof options !== 'object' || options === null) {
      throw new TypeError(`${call.name} takes one argument and options such as { key: 'a' }: give several values as a list or an object`);
    }
    checkNames(call, options, call.names);
    const { name = null, key = null } = options;
    if (name !== null) checkText(`the name of ${call.name}`, name);
    if (key !== null) checkText(`the key of ${call.name}`, key);
    return { ...options, name, key };
  };

  // What a flow's function gets first: its steps, and all that an instance may know of the world.
  class Flow {
    #program;
    #idOf;
    // What an instance begins with that continues itself, or that has steps of another one.
    #begun;
    #memos;
    #outcomes;
    #id = null;
    // The steps of the memo by identity, and of each child the step whose end has not been told.
    #known = new Map();
    #owners;
    #values = new Map();
    #seed = null;
    #seedsTaken = 0;
    // Functions that run here and have not been told.
    #locals = [];
    // Promises of jobs and of functions that run here.
    #promises = [];
    // The waits for events that the code has asked for.
    #waits = [];
    // Of the suspension to come.
    #fresh = [];
    #newValues = [];
    #newSeed = null;
    #ended = null;
    // The memo with which the instance begins anew.
    #next = null;
    #isOver = false;

    constructor(program, memos, outcomes, idOf) {
      this.#program = program;
      this.#idOf = idOf;
      this.#begun = memos[0]?.begin ?? null;
      const { memos: earlier = [], outcomes: ended = [] } = this.#begun ?? {};
      this.#memos = this.#begun === null ? memos : [...earlier, ...memos.slice(1)];
      this.#outcomes = [...ended, ...outcomes];
      this.#owners = new Array(this.#outcomes.length).fill(null);
      this.name = program.name;
      this.version = program.version;
      this.#read();
    }

    // The id of the instance's job.
    get id() {
      this.#id ??= this.#idOf();
      return this.#id;
    }

    // How often the instance has begun anew, by `continueWith`.
    get continued() { return this.#begun?.count ?? 0; }

    // --- the memo ---

    #read() {
      let end = this.#owners.length;
      for (const memo of [...this.#memos].reverse()) {
        for (const [name, hash, key = null, count = null] of [...memo.steps ?? []].reverse()) {
          const place = identityOf(name, key);
          end -= count ?? 1;
          const record = new StepRecord(name, hash, key, count, end, this.#known.get(place) ?? null);
          this.#owners.fill(record, Math.max(end, 0), Math.max(end, 0) + (count ?? 1));
          this.#known.set(place, record);
        }
        for (const entry of [...memo.values ?? []].reverse()) {
          const place = identityOf(entry[0], entry[2] ?? null);
          if (!this.#values.has(place)) this.#values.set(place, []);
          this.#values.get(place).push(entry);
        }
        this.#seed ??= memo.seed ?? null;
      }
      if (end !== 0) {
        throw new FlowError(`the memo of flow ${this.name} has ${this.#owners.length - end} steps, and the store has ` +
          `${this.#owners.length} children of it: this instance was begun by another version of Gristmill`);
      }
    }

    // The steps in the memo that the code has not asked for so far.
    unused() {
      const left = [];
      for (let one of this.#known.values()) for (; one !== null; one = one.next) left.push(one);
      return left.sort((one, other) => one.first - other.first).map((one) => shown(one.name, one.key));
    }

    // Tells the end of a child.
    #deliver(index) {
      const record = this.#owners[index];
      if (!record) return;
      this.#owners[index] = null;
      record.missing--;
      if (record.missing > 0) return;
      record.isTold = true;
      if (record.promise !== null) this.#settle(record);
    }

    #settle(record) {
      try {
        record.promise.resolve(record.count === null ? this.#valueOf(record) : this.#valuesOf(record));
      } catch (error) {
        record.promise.reject(error);
      }
    }

    #valueOf(record) {
      const outcome = this.#outcomes[record.first];
      if (outcome.state === 'completed') return record.convert(outcome.value ?? null);
      if (outcome.state === 'expired' && record.name === SLEEP) return undefined;
      if (outcome.state === 'expired' && record.name.startsWith('@')) {
        throw new TimeoutError(`the event '${record.name.slice(1)}' was not sent in time`);
      }
      throw this.#failureOf(record, outcome);
    }

    #valuesOf(record) {
      return this.#outcomes.slice(record.first, record.first + record.count).map((outcome) => {
        if (outcome.state === 'completed') return record.convert(outcome.value ?? null);
        const failure = this.#failureOf(record, outcome);
        if (record.keepsErrors) return failure;
        throw failure;
      });
    }

    #failureOf(record, outcome) {
      return new StepFailed(record.name, record.key, outcome.job, outcome.state, outcome.error);
    }

    // --- what the code asks for ---

    // The step of the memo that has this identity. One that is not there begins.
    #take({ name, key = null, hash = null, count = null, head, payloads, convert = asIs, keepsErrors = false }) {
      const place = identityOf(name, key);
      let record = this.#known.get(place) ?? null;
      if (record !== null) {
        if (hash !== null && (record.hash !== hash || record.count !== count)) throw this.#differs(record, hash, count);
        if (record.next === null) this.#known.delete(place);
        else this.#known.set(place, record.next);
      } else {
        record = Object.assign(new StepRecord(name, hash ?? 0, key, count, -1, null), { head, payloads });
        this.#fresh.push(record);
      }
      const isSignal = name.startsWith('@');
      const settled = FlowPromise.ofStep(isSignal ? name.slice(1) : name);
      Object.assign(record, { promise: settled, convert, keepsErrors });
      if (!isSignal) this.#promises.push(settled.promise);
      else if (name !== SLEEP) this.#waits.push(record);
      if (record.isTold) this.#settle(record);
      return settled.promise;
    }

    #differs(record, hash, count) {
      let number = 1;
      for (const memo of this.#memos) {
        number += (memo.steps ?? []).filter(([name, , key = null]) => name === record.name && key === record.key).length;
      }
      for (let one = record; one !== null; one = one.next) number--;
      const hex = (value) => value.toString(16).padStart(8, '0');
      const counted = (value) => (value === null ? 'one payload' : `${value} items`);
      const what = record.count !== count
        ? `had ${counted(record.count)}, and the code now gives it ${counted(count)}`
        : `had arguments of the hash ${hex(record.hash)}, and the code now gives it some of the hash ${hex(hash)}`;
      return new FlowError(`step ${shown(record.name, record.key)}, number ${number} of its name, of flow ${this.name} ${what}: the ` +
        'instance has begun this step. Give the steps of a loop or a branch a `key`, or begin new instances from before the step ' +
        'by `gristmill flow fork`');
    }

    // Begins a job, which the program knows: of the script or the application, or a kind of other workers. Awaiting it gives its
    // result.
    step(job, argument, options = {}, ...more) {
      const ofStep = { name: 'a step', names: ['name', 'key', ...this.#program.stepOptions] };
      const { name, key, ...ofChildren } = optionsOf(ofStep, options, more);
      const { label, head, payload, convert } = this.#program.prepare(job, ofChildren);
      const text = payload(argument);
      if (this.#isOver) return new Promise(ignore);
      return this.#take({ name: name ?? label, key, hash: crc32(canonical(text)), head, payloads: text, convert });
    }

    // Begins a job for each item. Awaiting it gives the results in the items' order, once all have ended. It is one step.
    map(job, items, options = {}, ...more) {
      const ofMap = { name: 'a map', names: ['name', 'key', ...this.#program.stepOptions, 'returnErrors'] };
      const { name, key, returnErrors: keepsErrors = false, ...ofChildren } = optionsOf(ofMap, options, more);
      const { label, head, payload, convert } = this.#program.prepare(job, ofChildren);
      if (typeof items?.[Symbol.iterator] !== 'function' || typeof items === 'string') {
        throw new TypeError(`the items of a map are ${inspect(items)}: give a list`);
      }
      const payloads = [];
      for (const item of items) {
        if (payloads.length === STEPS_OPEN_MAX) {
          throw new FlowError(`a map of over ${STEPS_OPEN_MAX} items (STEPS_OPEN_MAX): map portions of them, one after the other`);
        }
        payloads.push(payload(item, payloads.length));
      }
      if (payloads.length === 0) return Promise.resolve([]);
      if (this.#isOver) return new Promise(ignore);
      const hash = crc32(payloads.map(canonical).join(','));
      const texts = payloads.join(',');
      return this.#take({ name: name ?? label, key, hash, count: payloads.length, head, payloads: texts, convert, keepsErrors });
    }

    // Waits for an event that is sent to this instance; gives its value. Fails with `TimeoutError` after `timeout`.
    event(name, options = {}, ...more) {
      const { timeout = null } = optionsOf(ofEvent, options, more);
      checkText('the name of an event', name);
      if (Buffer.byteLength(name) > EVENT_NAME_BYTES_MAX) throw new FlowError(`an event's name of over ${EVENT_NAME_BYTES_MAX} bytes`);
      const limit = timeout === null ? '' : `,"delay_ms":${millisecondsOf(timeout, 'the timeout of an event')}`;
      return this.#signal(`@${name}`, `{"event":${JSON.stringify(name)}${limit}`);
    }

    // Waits for a span such as "2d", or up to a time (a Date).
    sleep(until) {
      if (until instanceof Date && Number.isNaN(until.getTime())) throw new FlowError('flow.sleep was given a Date that is not valid');
      const limit = until instanceof Date
        ? `"until_ms":${Math.max(0, until.getTime())}`
        : `"delay_ms":${millisecondsOf(until, 'the span of a sleep')}`;
      return this.#signal(SLEEP, `{"event":null,${limit}`);
    }

    // How long a wait lasts was decided when it began.
    #signal(name, head) {
      return this.#isOver ? new Promise(ignore) : this.#take({ name, head, payloads: 'null' });
    }

    // The first of these to end, as `{ name, value, index }`. The others go on, and may be awaited; they end with the flow.
    first(...promises) {
      if (promises.length === 0) throw new FlowError('flow.first() of nothing never ends: give steps, events, sleeps or other promises');
      const { promise, resolve, reject } = FlowPromise.ofStep('first');
      let isDecided = false;
      promises.forEach((one, index) => {
        const raced = one instanceof FlowPromise ? one.inRace(promise) : one;
        const won = (value) => {
          if (!isDecided && raced !== one) raced.win();
          isDecided = true;
          resolve({ name: one?.step ?? '', value, index });
        };
        const failed = (error) => {
          isDecided = true;
          reject(error);
        };
        Promise.resolve(raced).then(won, failed);
      });
      return promise;
    }

    // Runs a function here, in this process, and keeps its value like that of a step.
    local(target, argument, options = {}, ...more) {
      const { name, key } = optionsOf(ofLocal, options, more);
      if (typeof target !== 'function') throw new TypeError(`flow.local was given ${inspect(target)}: give it a function`);
      const label = name ?? target.name;
      if (label === '') throw new FlowError('flow.local was given a function without a name: give it `{ name: … }` as third argument');
      if (this.#isOver) return new Promise(ignore);
      const place = identityOf(label, key);
      const kept = this.#values.get(place)?.pop();
      const { promise, resolve, reject } = FlowPromise.ofStep(label);
      const value = kept !== undefined ? Promise.resolve({ value: kept[1], entry: kept }) : (async () => {
        try {
          const told = `the function ${label} returned`;
          const text = this.#program.serialise(await target(argument), told);
          // Two values: the code may change its own.
          const [own, other] = [0, 0].map(() => this.#program.parse(text, `what ${told}`));
          return { value: own, entry: [label, other, ...key === null ? [] : [key]] };
        } catch (error) {
          const { type, message, traceback } = describe(error);
          return { entry: [label, null, key, { type, message, traceback }] };
        }
      })();
      // They are told one after the other, in this order.
      this.#locals.push(async () => {
        const { value: own, entry } = await value;
        if (kept === undefined) this.#newValues.push(entry);
        if (entry.length > 3) reject(new StepFailed(label, key, this.id, 'dead', entry[3]));
        else resolve(own);
      });
      this.#promises.push(promise);
      return promise;
    }

    // The time, as a Date; the same in each replay.
    now() {
      const entry = this.#values.get(NOW)?.pop();
      if (entry !== undefined) return new Date(entry[1]);
      const time_ms = this.#program.nowMs();
      this.#newValues.push([NOW, time_ms]);
      return new Date(time_ms);
    }

    // A number from 0 to below 1; the same in each replay.
    random() {
      const bits = this.#bits();
      return (bits.readUInt32BE(0) * 2 ** 21 + (bits.readUInt32BE(4) >>> 11)) / 2 ** 53;
    }

    // A UUID; the same in each replay.
    uuid() {
      const bits = this.#bits();
      bits[6] = bits[6] & 0x0f | 0x40;
      bits[8] = bits[8] & 0x3f | 0x80;
      return bits.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
    }

    #bits() {
      this.#seed ??= this.#newSeed = newSeed();
      this.#seedsTaken++;
      return digest(`${this.#seed} ${this.#seedsTaken}`).subarray(0, 16);
    }

    // Begins the instance anew with this state in place of its item, and with an empty memo. The flow stops at it.
    continueWith(state) {
      if (!this.#isOver) {
        const { origin } = this.#begun ?? {};
        const begin = { count: this.continued + 1, origin, state: state ?? null };
        this.#next = this.#memoText({ begin });
        this.#isOver = true;
      }
      return new Promise(ignore);
    }

    #memoText(memo) {
      const text = this.#program.serialise(memo, 'a flow keeps');
      const bytes = Buffer.byteLength(text);
      if (bytes <= MEMO_BYTES_MAX) return text;
      throw new FlowError(`flow ${this.name} would keep ${bytes} bytes of names, keys and local values, or of state, at one wait; the ` +
        `limit is ${MEMO_BYTES_MAX} (MEMO_BYTES_MAX): return references from flow.local, or make what is large in a step`);
    }

    // --- one run ---

    // Its value, or its `Suspension`. `program` has the flow's `name`, `version` and `function`; `nowMs`, its clock; `prepare`, which
    // gives what the step of a job needs, and the names of its `stepOptions`; and how values become JSON and come back (`serialise`,
    // `parse`).
    static async run(program, payload, memos, outcomes, idOf) {
      if (!Array.isArray(memos)) throw new FlowError(`a job was begun before ${program.name} became a flow: submit it anew`);
      const flow = new Flow(program, memos, outcomes, idOf);
      instancesRunning++;
      try {
        return await flow.#run(payload);
      } finally {
        instancesRunning--;
        flow.#isOver = true;
      }
    }

    async #run(payload) {
      const owners = this.#owners;
      const item = this.#begun !== null && 'state' in this.#begun ? this.#begun.state : payload;
      const code = async () => this.#program.function(this, item);
      code().then((value) => { this.#ended = { value }; }, (error) => { this.#ended = { error }; });
      await this.#turn();
      let spawned = 0;
      for (const [number, memo] of this.#memos.entries()) {
        if (this.#hasEnded()) break;
        if (number > 0) {
          for (const index of eachOf(memo.seen ?? [[0, spawned]])) this.#deliver(index);
          await this.#turn();
        }
        for (const [, , , count] of memo.steps ?? []) spawned += count ?? 1;
      }
      let seen = [], isAll = true;
      if (!this.#hasEnded() && this.#memos.length > 0) {
        const open = [...owners.keys()].filter((index) => owners[index] !== null);
        seen = open.filter((index) => FINAL_STATES.has(this.#outcomes[index].state));
        isAll = seen.length === open.length;
        seen.forEach((index) => this.#deliver(index));
        await this.#turn();
      }
      if (this.#next !== null) {
        await this.#endLocals();
        // Events that the code has not read go back, also those that open waits have got meanwhile.
        const isEvent = (owner) => owner !== null && owner.name.startsWith('@') && owner.name !== SLEEP;
        const open = [...owners.keys()].filter((index) => isEvent(owners[index]));
        const unread = this.#waits.filter((record) => record.isTold && !record.promise.promise.isRead);
        const waits = [...open, ...unread.map((record) => record.first)];
        const givenUp = JSON.stringify(waits.map((index) => this.#outcomes[index].job));
        return new Suspension(
          `{"children":[],"memo":[${this.#next}],"on_failure":"collect","flow":true,"wake":"anew","given_up":${givenUp}}`);
      }
      return this.#ended ? this.#conclude() : this.#suspension(seen, isAll);
    }

    #hasEnded() { return this.#ended !== null || this.#next !== null; }

    // A function that goes on would run beside the next job.
    async #endLocals() {
      while (this.#locals.length > 0) await this.#locals.shift()();
    }

    // Lets the code go on until it waits for its steps alone.
    async #turn() {
      for (;;) {
        // What is between two turns of the event loop has run by then.
        await new Promise((resolve) => whenIdle(resolve));
        if (this.#hasEnded() || this.#locals.length === 0) return;
        await this.#locals.shift()();
      }
    }

    async #conclude() {
      await this.#endLocals();
      if ('error' in this.#ended) throw this.#ended.error;
      const forgotten = this.#promises.find((promise) => !promise.isAwaited);
      if (forgotten) {
        throw new FlowError(`flow ${this.name} ended, and nothing awaited its step ${forgotten.step}: the end of a flow cancels its ` +
          'open steps, so await it, alone or with others in Promise.all');
      }
      return this.#ended.value;
    }

    // What is kept of a run that waits.
    #suspension(seen, isAll) {
      const fresh = this.#fresh;
      const open = this.#owners.filter((owner) => owner !== null);
      const freshCount = fresh.reduce((sum, record) => sum + record.missing, 0);
      const groupsOpen = fresh.length + new Set(open).size;
      if (groupsOpen === 0) {
        throw new FlowError(`flow ${this.name} awaits what is no promise of its flow: it may await steps, events and sleeps, and what ` +
          'Promise.all and its like make of them. Do timers, fetch and files in a step, or in a function that flow.local runs');
      }
      if (open.length + freshCount > STEPS_OPEN_MAX) {
        throw new FlowError(`flow ${this.name} has ${open.length + freshCount} open steps at once; the limit is ${STEPS_OPEN_MAX} ` +
          '(STEPS_OPEN_MAX)');
      }
      const total = this.#owners.length + freshCount;
      if (total > STEPS_MAX) {
        throw new FlowError(`flow ${this.name} has ${total} steps; the limit is ${STEPS_MAX} (STEPS_MAX): continue with ` +
          'a state before, by flow.continueWith');
      }
      const { children, steps } = grouped(fresh);
      const memo = {};
      if (fresh.length > 0) memo.steps = steps;
      if (!isAll) memo.seen = runsOf(seen);
      if (this.#newValues.length > 0) memo.values = this.#newValues;
      if (this.#newSeed !== null) memo.seed = this.#newSeed;
      const text = this.#memoText(memo);
      const wake = groupsOpen === 1 ? 'all' : 'any';
      return new Suspension(`{"children":[${children}],"memo":[${text}],"on_failure":"collect","flow":true,"wake":"${wake}"}`);
    }
  }

