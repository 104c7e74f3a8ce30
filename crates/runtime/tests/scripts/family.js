// Spawns children and finalizes. `family.py` does the same.

export function main(payload) {
  if (payload === 'sibling') return gristmill.done({ n: 1 }, { siblings: ['more', 'most'], tags: { by: 'sibling' } });
  if (payload === 'single') return gristmill.done(7);
  if (payload === 'wrong sibling') return gristmill.done(1, { siblings: [NaN] });
  if (payload === 'wrong') return gristmill.spawn({ children: [NaN] });
  if (payload === 'misspelt') return gristmill.spawn({ children: ['more'], options: { priorty: 5 } });
  if (payload === 'misspelt retry') {
    return gristmill.spawn({ children: ['more'], options: { retry: { attempts: 5 } } });
  }
  if (payload === 'misspelt batch') return gristmill.spawn({ batches: [{ payload: ['more'] }] });
  if (payload === 'misspelt policy') return gristmill.spawn({ children: ['more'], on_failure: 'colect' });
  if (payload === 'misspelt sibling') return gristmill.done(1, { siblings: ['more'], options: { timeout: 5 } });
  if (payload === 'options') {
    return gristmill.spawn({ children: ['more'], options: { priority: 5, retry: { attempts_max: 7 } } });
  }
  if (payload === 'misspelt children') return gristmill.spawn({ childen: ['more'] });
  if (typeof payload === 'object') {
    const children = [...Array(payload.count).keys()];
    return gristmill.spawn({ children, memo: payload, kind: payload.kind, on_failure: 'collect' });
  }
  return payload;
}

export function finalize(payload, memo, outcomes) {
  if (payload === 'again') return gristmill.spawn({ children: ['more'] });
  return [payload, memo, outcomes.map((outcome) => outcome.value ?? outcome.state)];
}
