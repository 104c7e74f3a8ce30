  // --- numbers ---
  //
  // A JavaScript number holds integers up to 2^53 - 1, and nothing beyond 1.8e308. A payload with another number is refused with its
  // place, or has BigInts or texts for such integers where the script exports `bigints = 'bigint'` or `'string'`. BigInts and large
  // integers that main returns are written with all of their digits. Gristmill says which frames may have such numbers; all others
  // are read as they come.

  const BIGINTS = ['error', 'string', 'bigint'];
  let bigints = 'error';

  // What a script exports as `bigints`.
  const bigintsOf = (exported) => {
    if (exported === undefined || exported === false) return 'error';
    if (exported === true) return 'bigint';
    if (BIGINTS.includes(exported)) return exported;
    const error = new Error(`the script exports bigints = ${inspect(exported)}: give ${BIGINTS.map((name) => `'${name}'`).join(', ')}`);
    throw Object.assign(error, { name: 'NoSuchOption', stack: '' });
  };

  class InexactNumber extends Error {}

  // Stands for a payload that is refused.
  class Unreadable {
    constructor(error) { this.error = error; }
  }

  // The tokens of valid JSON that its values and their places consist of.
  function* tokens(text) {
    const token = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*|[[\]{},:]/g;
    for (let found; (found = token.exec(text)) !== null;) yield { text: found[0], at: found.index };
  }

  const isNumber = (token) => /^[-\d]/.test(token.text);

  // Where in a value a number lies, such as payload.ids[3].
  const placeOf = (text, at, names) => {
    const path = [];
    let last = '';
    for (const token of tokens(text)) {
      if (token.at === at) break;
      const top = path[path.length - 1];
      if (token.text === '[') path.push(0);
      else if (token.text === '{') path.push('');
      else if (token.text === ']' || token.text === '}') path.pop();
      else if (token.text === ':') path[path.length - 1] = JSON.parse(last);
      else if (token.text === ',' && typeof top === 'number') path[path.length - 1]++;
      last = token.text;
    }
    const root = names === null ? 'payload' : names[path.shift()];
    const step = (key) => {
      if (typeof key === 'number') return `[${key}]`;
      return /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
    };
    return (root + path.map(step).join('')).slice(0, 200);
  };

  const refused = (text, token, names, reason) => {
    const digits = token.text.length > 60 ? `${token.text.slice(0, 60)}…` : token.text;
    const error = new InexactNumber(`${placeOf(text, token.at, names)} is ${digits}, ${reason}`);
    Object.assign(error, { name: 'InexactNumber', stack: '', permanent: true });
    return new Unreadable(error);
  };

  // A text that no payload and no value contains.
  const mark = () => `gristmill-${hello.nonce}:`;

  // One payload, whose numbers are looked at one by one. `names` are those of the parts of a payload with several.
  const readPayload = (text, names) => {
    const marked = [];
    let from = 0;
    for (const token of tokens(text)) {
      if (!isNumber(token)) continue;
      const number = Number(token.text);
      if (!/^-?\d+$/.test(token.text)) {
        if (Number.isFinite(number)) continue;
        return refused(text, token, names, 'which is beyond the largest number of JavaScript; pass it as text');
      }
      if (Number.isSafeInteger(number)) continue;
      if (bigints === 'error') {
        return refused(text, token, names, 'which a JavaScript number cannot hold exactly; write `export const bigints = true` ' +
          'to get such integers as BigInt, or pass it as text');
      }
      marked.push(text.slice(from, token.at), bigints === 'bigint' ? `"${mark()}${token.text}"` : `"${token.text}"`);
      from = token.at + token.text.length;
    }
    if (from === 0) return JSON.parse(text);
    const prefix = mark();
    const toBigInt = (_, value) => (
      typeof value === 'string' && value.startsWith(prefix) ? BigInt(value.slice(prefix.length)) : value
    );
    return JSON.parse(marked.join('') + text.slice(from), toBigInt);
  };

  // The payloads of a frame one by one, and what stands for main where some are refused.
  const readEach = (text, main, names) => ({
    payloads: text.slice(1, -1).split('\n,').map((item) => readPayload(item, names)),
    main: (payload) => {
      if (payload instanceof Unreadable) throw payload.error;
      return main(payload);
    },
  });

  // Numbers of as many digits are looked at before they are written.
  const MAY_BE_INEXACT = /(?:^|[[,:-])\d{16}/;

  // The JSON of a value, with all digits of its integers.
  const exactJson = (value) => {
    const prefix = mark();
    const text = JSON.stringify(value, (_, part) => {
      const isLong = typeof part === 'bigint' || (Number.isInteger(part) && !Number.isSafeInteger(part) && Math.abs(part) < 1e21);
      return isLong ? prefix + BigInt(part) : part;
    });
    return text?.replaceAll(new RegExp(`"${prefix}(-?\\d+)"`, 'g'), '$1');
  };

  const toJson = (value) => {
    let text;
    try {
      text = JSON.stringify(value);
    } catch (error) {
      // A BigInt is among the reasons.
      if (!(error instanceof TypeError)) throw error;
      return exactJson(value);
    }
    return text !== undefined && text.length >= 16 && MAY_BE_INEXACT.test(text) ? exactJson(value) : text;
  };

