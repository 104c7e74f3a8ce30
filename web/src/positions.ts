/** Positions of jobs in a batch, as the API packs them: `0-499,731`. */

/** Calls `each` for every position below `below`. */
export function eachPosition(text: string, below: number, each: (position: number) => void): void {
  if (text === "") return;
  for (const range of text.split(",")) {
    const [first = NaN, last = first] = range.split("-").map(Number);
    for (let position = first; position <= last && position < below; position += 1) each(position);
  }
}

/** The number of positions. */
export function countPositions(text: string): number {
  if (text === "") return 0;
  let count = 0;
  for (const range of text.split(",")) {
    const [first = NaN, last = first] = range.split("-").map(Number);
    count += last - first + 1;
  }
  return count;
}

/** The first position, to link to. */
export const firstPosition = (text: string) => Number(/^\d+/.exec(text)?.[0] ?? 0);
