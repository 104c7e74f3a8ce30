/** Checks payloads while they are typed, and reports the place of the first mistake. */

export type Checked = { payloads: string[]; problem?: undefined } | { payloads?: undefined; problem: string };

/** One JSON text, or with `lines` one on each line. The texts are sent as they are, so that numbers stay exact. */
export function check(text: string, lines: boolean): Checked {
  if (text.trim() === "") return { problem: "The payload is empty. Type JSON, such as null." };
  if (!lines) {
    const problem = problemOf(text, 0);
    return problem ? { problem } : { payloads: [text.trim()] };
  }
  const payloads: string[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const problem = problemOf(line, index);
    if (problem) return { problem };
    payloads.push(line.trim());
  }
  return { payloads };
}

function problemOf(text: string, lines_before: number): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const at = /position (\d+)/.exec(message)?.[1];
    const reason = message.replace(/ in JSON at position.*$| is not valid JSON$|, (?="|\.\.\.).*$/s, "");
    const before = at === undefined ? text : text.slice(0, Number(at));
    const line = before.split("\n").length + lines_before;
    const column = before.length - before.lastIndexOf("\n");
    return `Line ${line}, column ${column}: ${reason}.`;
  }
}
