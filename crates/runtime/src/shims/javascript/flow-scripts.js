  // --- flows of a script ---

  // What a step's payload names its function by.
  const STEP = 'gristmill.step';
  // What the options of a step may have beside its name and key.
  const STEP_OPTIONS = ['queue', 'tags', 'options'];

  // What the errors of flows extend.
  const BaseError = Error;
  const newSeed = () => crypto.randomBytes(6).readUIntBE(0, 6);
  const digest = (text) => crypto.createHash('sha256').update(text).digest();

  // The value of a JSON text, whose integers are looked at one by one. `told` says whose value it is.
  const parseKept = (text, told) => {
    if (!MAY_BE_INEXACT.test(text)) return JSON.parse(text);
    const read = readPayload(`[${text}]`, [told]);
    if (read instanceof Unreadable) throw read.error;
    return read[0];
  };

  const heedRejections = () => process.on('unhandledRejection', (reason) => {
    if (instancesRunning === 0 && process.listenerCount('unhandledRejection') === 1) throw reason;
  });

  // A flow of a script; made by gristmill.flow.
  class ScriptFlow {
    constructor(body, name) { Object.assign(this, { body, name }); }
  }

  // Makes a function a durable flow of each item. Its parameters are the `Flow` and the item.
  const makeFlow = (body, options = {}) => {
    if (typeof body !== 'function') throw new TypeError(`gristmill.flow was given ${inspect(body)}: give it a function (flow, item)`);
    checkNames({ name: 'gristmill.flow' }, options, ['name']);
    return new ScriptFlow(body, options.name ?? (body.name || null));
  };

  // What the script exports, by name: those of its default export, too.
  const exportsOf = (script) => {
    const ofDefault = typeof script.default === 'object' && script.default !== null && !(script.default instanceof ScriptFlow);
    return new Map([...ofDefault ? Object.entries(script.default) : [], ...Object.entries(script)]);
  };

  // The flow that a script exports in place of main; undefined where it has another main, or no flow.
  const flowOf = (script, main) => {
    if (main instanceof ScriptFlow) return main;
    const flows = new Set([...exportsOf(script).values()].filter((one) => one instanceof ScriptFlow));
    if (typeof main === 'function' || flows.size === 0) return undefined;
    if (flows.size === 1) return [...flows][0];
    const names = [...exportsOf(script)].filter(([, one]) => one instanceof ScriptFlow).map(([name]) => name);
    const error = new Error(`${hello.script.split('/').pop()} exports several flows (${names.join(', ')}): export the one that runs its ` +
      'items as `main`');
    throw Object.assign(error, { name: 'NoMain', stack: '' });
  };

  // What runs the payloads and the ended children of a script whose main is a flow.
  const entriesOf = (script, mainFlow) => {
    const named = exportsOf(script);
    const namesOf = new Map([...named].reverse().map(([name, value]) => [value, name]));
    const labelOf = (job) => {
      if (typeof job === 'string') return checkText('the kind of a step', job);
      const label = typeof job === 'function' || job instanceof ScriptFlow ? namesOf.get(job) : undefined;
      if (label !== undefined) return label;
      throw new TypeError(`a step was given ${inspect(job)}, which the script does not export: write \`export\` before the function, ` +
        'give the name of a kind, or let flow.local run it');
    };
    const prepare = (job, { queue, tags, options }) => {
      const label = labelOf(job), isKind = typeof job === 'string';
      const told = `step ${label} was given`;
      return {
        label,
        // A function of the script has the kind of the flow, and is no flow.
        head: serialise({ kind: isKind ? job : null, step: typeof job === 'function', queue, tags, options }, told).slice(0, -1),
        payload: (argument) => serialise(isKind ? argument : { [STEP]: label, arguments: argument === undefined ? [] : [argument] }, told),
      };
    };
    const refuseSpawn = (value) => {
      if (value instanceof Spawn) throw new FlowError('a flow returned gristmill.spawn(…): await flow.map in its place');
      return value;
    };
    const programs = new Map();
    const programOf = (flow) => {
      if (!programs.has(flow)) {
        const name = flow.name ?? namesOf.get(flow);
        const run = async (...given) => refuseSpawn(await flow.body(...given));
        const nowMs = () => Date.now();
        const program = { name, version: null, nowMs, function: run, prepare, stepOptions: STEP_OPTIONS, serialise, parse: parseKept };
        programs.set(flow, program);
      }
      return programs.get(flow);
    };
    const isStep = (payload) => typeof payload === 'object' && payload !== null && Object.hasOwn(payload, STEP);
    // What runs the instance that a payload is of; undefined for a step that is a function.
    const runOf = (payload, memos, outcomes) => {
      const flow = isStep(payload) ? named.get(payload[STEP]) : mainFlow;
      if (!(flow instanceof ScriptFlow)) return undefined;
      const item = isStep(payload) ? payload.arguments[0] : payload;
      return Flow.run(programOf(flow), item, memos, outcomes, () => identity()?.id ?? null);
    };
    const main = (payload) => {
      const run = runOf(payload, [], []);
      if (run !== undefined) return run;
      const step = named.get(payload[STEP]);
      if (typeof step === 'function') return step(...payload.arguments);
      throw new FlowError(`the script exports no function '${payload[STEP]}', which a flow began as a step: keep its name`);
    };
    const own = finalize;
    const resume = (payload, memo, outcomes) => (
      runOf(payload, memo, outcomes) ?? (own ? own(payload, memo, outcomes) : withoutFinalize(outcomes))
    );
    return { main, finalize: resume, isAsync: [...named.values()].some((one) => types.isAsyncFunction(one)) };
  };

