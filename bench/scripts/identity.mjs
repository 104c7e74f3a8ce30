// Gives back what it gets: all that is measured is the way there and back.
export function main(payload) {
  return payload;
}
