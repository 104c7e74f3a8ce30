export function main(payload) {
  return payload;
}
