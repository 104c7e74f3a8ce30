// Spawns children and finalizes. `family.py` does the same.

export function main(payload) {
  if (payload === 'sibling') return gristmill.done({ n: 1 }, { siblings: ['more', 'most'], tags: { by: 'sibling' } });
  if (payload === 'single') return gristmill.done(7);
  if (payload === 'wrong sibling') return gristmill.done(1, { siblings: [NaN] });
  if (payload === 'wrong') return gristmill.spawn({ children: [NaN] });
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
