// TypeScript with types that are erased: runs on Deno, Bun and Node 22.6 and newer.
interface Payload { name: string; count?: number }

export async function main(payload: Payload): Promise<string> {
  const count: number = payload.count ?? 1;
  return `${payload.name} × ${count}`;
}
