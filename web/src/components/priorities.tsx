/** The named priorities, the highest first. */
export const PRIORITIES: [name: string, priority: number][] = [
  ["urgent", 100],
  ["high", 10],
  ["normal", 0],
  ["low", -10],
  ["background", -100],
];

/** The named priorities as the choices of a field. */
export function PriorityOptions() {
  return (
    <>
      {PRIORITIES.map(([name, priority]) => (
        <option key={name} value={String(priority)}>
          {name}
        </option>
      ))}
    </>
  );
}
