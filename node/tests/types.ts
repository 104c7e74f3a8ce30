// What compiles, and what does not: `tsc` checks this file in `make test-node`, nothing runs it.

import { App, type FlowJob, type Handle, type Handles, type StandardSchema, StepFailed, type Winner } from 'gristmill';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Equal<A, B>): void => {};

declare const dates: StandardSchema<{ at: string }, { at: Date }>;
const app = new App('jobs.db', { bigints: 'string' });

const shrink = app.job('shrink', async (picture: { name: string; width: number }) => picture.width / 2);
const handle = await shrink.submit({ name: 'a', width: 1 });
same<typeof handle, Handle<number>>(true);
same<Awaited<ReturnType<typeof handle.result>>, number>(true);
// @ts-expect-error: a member is missing.
await shrink.submit({ name: 'a' });
// @ts-expect-error: a payload is needed.
await shrink.submit();
// @ts-expect-error: no such option.
await shrink.submit({ name: 'a', width: 1 }, { delya: '1s' });
// @ts-expect-error: a span is text with a unit.
await shrink.submit({ name: 'a', width: 1 }, { delay: 5 });
// @ts-expect-error: of another type.
await shrink.submitMany(['a']);

const apart = app.job<number, string>('apart', { module: new URL('./apart.js', import.meta.url), processes: 2 });
same<Awaited<ReturnType<typeof apart.submit>>, Handle<string>>(true);
const dated = app.job('dated', { module: new URL('./apart.js', import.meta.url), payload: dates });
await dated.submit({ at: '2026-11-27' });
// Drizzle's tag takes templates.
const tag = (_: TemplateStringsArray, ...__: unknown[]): PromiseLike<{ rows: { job: unknown }[] }> => Promise.resolve({ rows: [] });
await apart.submitWithin((_, values, parts) => tag(parts, ...values), 1);
// @ts-expect-error: a batch handler is a function.
app.batch('apart', { module: new URL('./apart.js', import.meta.url) }, (texts: string[]) => texts);

const nothing = app.job('nothing', () => {});
const done = await nothing.submit();
same<typeof done, Handle<null>>(true);

const maybe = app.job('maybe', (text: string | undefined) => text);
same<Awaited<ReturnType<typeof maybe.submit>>, Handle<string | null>>(true);
await maybe.submit();

const year = app.job('year', { payload: dates }, ({ at }) => at.getFullYear());
same<Awaited<ReturnType<typeof year.submit>>, Handle<number>>(true);
await year.submit({ at: '2026-11-27' });
// @ts-expect-error: the schema takes text.
await year.submit({ at: new Date() });

const lengths = app.batch('lengths', { size: 2, key: (text: string) => text[0] }, (texts: string[]) => texts.map((text) => text.length));
same<Awaited<ReturnType<typeof lengths.submitMany>>, Handles<number>>(true);

const other = app.job<{ id: number }, { ok: boolean }>('other');
same<Awaited<ReturnType<typeof other.submit>>, Handle<{ ok: boolean }>>(true);
// @ts-expect-error: of another type.
await app.schedule('nightly', other, { cron: '@daily', payload: { id: 'x' } });

// --- flows ---

const order = app.flow('order', { version: '1' }, async (flow, picture: { name: string; width: number }) => {
  const half = await flow.step(shrink, picture);
  same<typeof half, number>(true);
  // @ts-expect-error: a member is missing.
  await flow.step(shrink, { name: 'a' });
  // @ts-expect-error: a payload is needed.
  await flow.step(shrink);
  // @ts-expect-error: no such option.
  await flow.step(shrink, picture, { kye: 'a' });
  // @ts-expect-error: of another type.
  await flow.map(shrink, ['a']);
  const all = await flow.map(shrink, [picture]);
  same<typeof all, number[]>(true);
  const some = await flow.map(shrink, [picture], { returnErrors: true });
  same<typeof some, (number | StepFailed)[]>(true);
  const counted = await flow.map(lengths, ['a']);
  same<typeof counted, number[]>(true);
  const named = await flow.step<string>('resize', { path: 'a' }, { key: 'a', queue: 'slow' });
  same<typeof named, string>(true);
  await flow.step(year, { at: '2026-11-27' });
  const empty = await flow.step(nothing);
  same<typeof empty, null>(true);
  const approval = flow.event<{ by: string }>('approve', { timeout: '2d' });
  const first = await flow.first(approval, flow.sleep('2d'), flow.step(shrink, picture));
  same<typeof first, Winner<void | number | { by: string }>>(true);
  const local = await flow.local((name: string) => name.length, picture.name);
  same<typeof local, number>(true);
  // @ts-expect-error: of another type.
  await flow.local((name: string) => name.length, 7);
  // @ts-expect-error: a span is text with a unit.
  await flow.sleep(5);
  const kinds = await flow.map<string>('resize', ['a'], { returnErrors: true });
  same<typeof kinds, (string | StepFailed)[]>(true);
  const plain = await flow.map<string>('resize', ['a'], { key: 'a' });
  same<typeof plain, string[]>(true);
  // @ts-expect-error: of another type.
  if (flow.random() > 0.9) return flow.continueWith('a');
  if (flow.random() > 0.5) return flow.continueWith(picture);
  return { half, at: flow.now().getTime() };
});
same<typeof order, FlowJob<{ name: string; width: number }, { half: number; at: number }>>(true);
const ordered = await order.submit({ name: 'a', width: 1 });
await ordered.sendEvent('approve', { by: 'Ada' });
// @ts-expect-error: a member is missing.
await order.submit({ name: 'a' });
const parent = app.flow('parent', async (flow, name: string) => {
  const { half } = await flow.step(order, { name, width: 1 });
  // @ts-expect-error: of another type.
  await flow.step(order, name);
  return half;
});
same<Awaited<ReturnType<typeof parent.submitMany>>, Handles<number>>(true);
const converted = app.flow('converted', { payload: dates }, async (flow, { at }) => {
  // @ts-expect-error: the schema takes text.
  if (flow.continued < 0) return flow.continueWith({ at });
  if (flow.continued < 1) return flow.continueWith({ at: at.toISOString() });
  return at.getTime();
});
await converted.submit({ at: '2026-11-27' });
// @ts-expect-error: the schema takes text.
await converted.submit({ at: new Date() });
const elsewhere = app.flow<{ id: number }, string>('elsewhere', { version: '2' });
// @ts-expect-error: of another type.
await elsewhere.submit({ id: 'x' });
await app.sendEvents([{ key: 'a', name: 'paid' }, { flow: ordered, name: 'paid', value: 7 }], { job: order });
// @ts-expect-error: by a flow or a key.
await app.sendEvents([{ name: 'paid' }]);
