// Generators that end while they wait.

/**
 * An asynchronous generator whose `return` calls `onReturn` at once: a plain one hears of it only when it has given its next
 * value, and one that has not begun not at all. @internal
 */
export function closable<T>(
  generator: AsyncGenerator<T, void, undefined>, onReturn: () => void, refusal: () => Error | null = () => null,
): AsyncGenerator<T, void, undefined> {
  const end = (): Promise<IteratorResult<T, void>> => {
    onReturn();
    return generator.return();
  };
  const outer: AsyncGenerator<T, void, undefined> = {
    next: () => {
      const refused = refusal();
      return refused === null ? generator.next() : Promise.reject(refused);
    },
    return: end,
    throw: (error: unknown) => {
      onReturn();
      return generator.throw(error);
    },
    [Symbol.asyncIterator]: () => outer,
    [Symbol.asyncDispose]: async () => {
      await end();
    },
  };
  return outer;
}
