/** JSON as text: JSON.parse makes 1 of 1.0, rounds integers beyond 2^53, and makes an infinity of 1e400. */

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s"[\]{},:]+/g;

const opens = (token: string) => token === "{" || token === "[";
const closes = (token: string) => token === "}" || token === "]";

/** The text of each field of an object, unchanged. */
export function fieldTexts(object: string): Map<string, string> {
  const fields = new Map<string, string>();
  let name: string | undefined;
  let from = 0;
  let depth = 0;
  let last = "";
  for (const { 0: token, index } of object.matchAll(TOKEN)) {
    if (depth === 1 && name !== undefined && (token === "," || token === "}")) {
      fields.set(name, object.slice(from, index).trim());
      name = undefined;
    }
    if (depth === 1 && token === ":") {
      name = JSON.parse(last) as string;
      from = index + 1;
    }
    if (opens(token)) depth += 1;
    else if (closes(token)) depth -= 1;
    last = token;
  }
  return fields;
}

/** The same JSON with line breaks. Its values keep their texts. */
export function indented(json: string): string {
  const parts: string[] = [];
  let depth = 0;
  let last = "";
  for (const [token] of json.matchAll(TOKEN)) {
    if (closes(token)) depth -= 1;
    const is_empty = closes(token) && opens(last);
    const is_new_line = opens(last) || last === "," || closes(token);
    if (is_new_line && !is_empty) parts.push("\n", "  ".repeat(depth));
    parts.push(token === ":" ? ": " : token);
    if (opens(token)) depth += 1;
    last = token;
  }
  return parts.join("");
}
