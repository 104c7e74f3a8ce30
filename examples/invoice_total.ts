// Checks invoices and adds them up: TypeScript for Deno, Bun, and Node 22.6 or newer.
//
//     gristmill run examples/invoice_total.ts --input invoices.jsonl --output totals.jsonl
//
// An item: {"currency": "EUR", "lines": [{"quantity": 2, "unit_price": "9.99", "vat_percent": 19}]}
// Amounts are texts and are added as whole cents, since binary fractions do not add up.

interface Line { quantity: number; unit_price: string; vat_percent: number }
interface Invoice { currency: string; lines: Line[] }
interface Total { currency: string; net: string; vat: string; gross: string }

// A retry would find the same invoice: `permanent` prevents it.
class InvalidInvoice extends Error {
  permanent = true;
}

function cents(amount: string, where: string): bigint {
  const parts = /^(-?)(\d+)(?:\.(\d{1,2}))?$/.exec(amount);
  if (!parts) throw new InvalidInvoice(`${where}: ${JSON.stringify(amount)} is not an amount such as "9.99"`);
  const value = BigInt(parts[2]) * 100n + BigInt((parts[3] ?? '').padEnd(2, '0'));
  return parts[1] ? -value : value;
}

function text(amount: bigint): string {
  const digits = (amount < 0n ? -amount : amount).toString().padStart(3, '0');
  return `${amount < 0n ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`;
}

export function main(invoice: Invoice): Total {
  if (!Array.isArray(invoice?.lines)) throw new InvalidInvoice('an invoice has lines');
  const netByVat = new Map<number, bigint>();
  invoice.lines.forEach((line, index) => {
    if (!Number.isInteger(line.quantity)) throw new InvalidInvoice(`line ${index + 1}: quantity is a whole number`);
    if (!Number.isInteger(line.vat_percent)) throw new InvalidInvoice(`line ${index + 1}: vat_percent is a whole number`);
    const net = BigInt(line.quantity) * cents(line.unit_price, `line ${index + 1}`);
    netByVat.set(line.vat_percent, (netByVat.get(line.vat_percent) ?? 0n) + net);
  });
  let net = 0n, vat = 0n;
  for (const [percent, amount] of netByVat) {
    net += amount;
    // Tax is rounded once a rate, half away from zero.
    const hundredths = amount * BigInt(percent);
    vat += (hundredths + (hundredths < 0n ? -50n : 50n)) / 100n;
  }
  return { currency: invoice.currency, net: text(net), vat: text(vat), gross: text(net + vat) };
}
