// A flow of each item. `flow.py` does the same.

export const fetchText = (url) => `the text of ${url}`;

export async function measure({ text, more }) {
  await null;
  return text.length + more;
}

export function fail(text) {
  throw Object.assign(new Error(text), { name: 'ValueError' });
}

export const count = (words) => words.length;

const kept = async (flow) => {
  await flow.sleep('2d');
  return [flow.random(), flow.uuid(), flow.now().getTime(), flow.id];
};

const chosen = async (flow) => {
  const first = await flow.first(flow.event('approve', { timeout: '1h' }), flow.sleep('2d'));
  return [first.name, first.value ?? null, first.index];
};

export const main = gristmill.flow(async function document(flow, url) {
  if (url === 'kept') return kept(flow);
  if (url === 'chosen') return chosen(flow);
  const text = await flow.step(fetchText, url);
  const more = { text, more: 1, ä: 0.00001, 10: 2, 9: [1.5, 1e22] };
  const sizes = await Promise.all([flow.step(measure, more), flow.step(measure, more, { key: 'more' })]);
  const mapped = await flow.map(count, ['a', 'bb'], { name: 'mapped' });
  await flow.sleep('10ms');
  const upper = await flow.local((own) => own.toUpperCase(), url, { name: 'upper' });
  const sent = await flow.event('approve');
  try {
    await flow.step(fail, url);
  } catch (failed) {
    if (!(failed instanceof gristmill.StepFailed)) throw failed;
    return [sizes, mapped, upper, sent, failed.step, failed.type, flow.id];
  }
});
