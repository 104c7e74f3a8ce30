/** Numbers, times and JSON, in the page's format. */

const WHOLE = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const whole = (value: number) => WHOLE.format(value);
export const compact = (value: number) => (Math.abs(value) < 100_000 ? WHOLE.format(value) : COMPACT.format(value));
export const rate = (perSecond: number) =>
  perSecond >= 100 ? compact(Math.round(perSecond)) : perSecond === 0 ? "0" : perSecond.toFixed(perSecond < 10 ? 1 : 0);

export const plural = (count: number, one: string, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

/** `1.2 MB`. */
export function bytes(count: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const step = count < 1_000 ? 0 : Math.min(Math.floor(Math.log10(count) / 3), units.length - 1);
  const value = count / 1_000 ** step;
  return `${step > 0 && value < 10 ? value.toFixed(1) : whole(Math.round(value))} ${units[step]}`;
}

/** `3 min`, of milliseconds. */
export function span(ms: number): string {
  const positive = Math.abs(ms);
  if (positive < 1) return `${(positive * 1000).toFixed(0)} µs`;
  if (positive < 1_000) return `${positive < 10 ? positive.toFixed(1) : positive.toFixed(0)} ms`;
  const seconds = positive / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
  if (seconds < 3_600)
    return `${Math.floor(seconds / 60)} min${seconds % 60 >= 1 && seconds < 600 ? ` ${Math.floor(seconds % 60)} s` : ""}`;
  if (seconds < 86_400)
    return `${Math.floor(seconds / 3600)} h${Math.floor((seconds % 3600) / 60) ? ` ${Math.floor((seconds % 3600) / 60)} min` : ""}`;
  return `${Math.floor(seconds / 86_400)} d${Math.floor((seconds % 86_400) / 3600) ? ` ${Math.floor((seconds % 86_400) / 3600)} h` : ""}`;
}

/** `3 min ago`, `in 2 h`. */
export function relative(at: number, now: number): string {
  const difference = at - now;
  if (Math.abs(difference) < 1_500) return "now";
  const rounded = span(Math.round(Math.abs(difference) / 1000) * 1000).replace(/^(\d)\.0 s$/, "$1 s");
  return difference < 0 ? `${rounded} ago` : `in ${rounded}`;
}

const two = (value: number) => String(value).padStart(2, "0");
export function clock(at: number): string {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** `2026-03-09 14:05:02`, in the browser's time zone. */
export function moment(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`;
}

/** `Mon, 2026-03-09 04:30:00 CET`, in a time zone, or in the browser's own if it does not know the zone. */
export function momentIn(at: number, zone: string | undefined): string {
  const options: Intl.DateTimeFormatOptions = {
    weekday: "short",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    timeZoneName: "short",
  };
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat("en", { ...options, ...(zone ? { timeZone: zone } : {}) });
  } catch {
    format = new Intl.DateTimeFormat("en", options);
  }
  const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, value]));
  const { weekday, year, month, day, hour, minute, second, timeZoneName } = parts;
  return `${weekday}, ${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

export function shorten(text: string, length: number): string {
  const line = text.split("\n", 1)[0] ?? "";
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
