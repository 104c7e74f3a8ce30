// Redacts e-mail addresses, card numbers and IBANs in texts, and counts them.
//
//     gristmill run examples/redact.mjs --input tickets.csv --output redacted.jsonl
//
// An item is a text, or an object (a row of a CSV) with texts. Card numbers and IBANs count only with
// valid check digits, so that order numbers stay unchanged.

const EMAIL = /[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+/gu;
const CARD = /\b\d(?:[ -]?\d){12,18}\b/g;
const IBAN = /\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b/g;

// The Luhn check: every second digit from the right doubled, their digits summed.
function isCard(text) {
  const digits = [...text.replace(/\D/g, '')].reverse().map(Number);
  const sum = digits.reduce((sum, digit, index) => {
    const weighted = index % 2 === 1 ? digit * 2 : digit;
    return sum + (weighted > 9 ? weighted - 9 : weighted);
  }, 0);
  return sum % 10 === 0;
}

// ISO 13616: country and check digits moved to the end, letters as numbers, modulo 97 is 1.
function isIban(text) {
  const compact = text.replace(/ /g, '');
  const moved = compact.slice(4) + compact.slice(0, 4);
  const number = [...moved].map((letter) => parseInt(letter, 36)).join('');
  return BigInt(number) % 97n === 1n;
}

function redact(text, found) {
  const replace = (pattern, name, isReal = () => true) => {
    text = text.replace(pattern, (match) => {
      if (!isReal(match)) return match;
      found[name] = (found[name] ?? 0) + 1;
      return `[${name}]`;
    });
  };
  replace(EMAIL, 'email');
  replace(IBAN, 'iban', isIban);
  replace(CARD, 'card', isCard);
  return text;
}

export function main(payload) {
  const found = {};
  const visit = (value) => {
    if (typeof value === 'string') return redact(value, found);
    if (Array.isArray(value)) return value.map(visit);
    if (value !== null && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, visit(inner)]));
    }
    return value;
  };
  return { redacted: visit(payload), found };
}
