// Usage: the page, its chart and both CSV files against the tour's own account of its calls.

import { idOf } from '../elsewhere.mjs';
import { eventually } from '../wait.mjs';

const REASONS = ['burst', 'paused', 'inactive', 'day', 'wrong_secret'];
// Counts are rolled up every two seconds.
const ROLLED_UP_MAX_MS = 20_000;

export async function usage({ report, gallery, elsewhere }, member) {
  const total = sumOf([...(await idsOf(member))].map((id) => elsewhere.tally.get(id) ?? {}));
  const own = sumOf([elsewhere.tally.get(idOf(member.key))]);
  await report.claim('the usage page shows what was called, answered and refused by reason', async () => {
    await member.visit('/keys');
    await member.follow('/usage');
    await agrees(member, () => numbersOfPage(member), total);
    await gallery.keep(member.page, 'usage');
    return toldOf(total);
  });
  await report.claim('so does its chart', async () => {
    const [today] = await member.page.locator('svg.days g title').allTextContents().then((titles) => titles.slice(-1));
    const wanted = `${total.admitted} answered, ${total.refused} refused`;
    if (!today.endsWith(wanted)) throw new Error(`the last bar says “${today}”, not “${wanted}”`);
  });
  await report.claim('so does its CSV file', async () => {
    await agrees(member, async () => numbersOfCsv(await member.download('/usage.csv')), total);
  });
  await report.claim('and so do the page and the CSV file of one key', async () => {
    await member.visit(member.keyPath);
    await agrees(member, () => numbersOfPage(member), own);
    await agrees(member, async () => numbersOfCsv(await member.download(`${member.keyPath}/usage.csv`)), own);
    return toldOf(own);
  });
}

async function idsOf(member) {
  await member.visit('/keys');
  const codes = await member.page.locator('main code').allTextContents();
  return new Set(codes.filter((code) => /^ips_\w{10}$/.test(code)).map((code) => code.slice(4)));
}

// Reads until the numbers agree: those of the last seconds may be on their way. With script the page keeps itself up to date.
async function agrees(member, read, wanted) {
  const expected = JSON.stringify(wanted);
  let last;
  const isRight = async () => {
    last = JSON.stringify(await read());
    if (last !== expected && !member.scripted) await member.page.reload();
    return last === expected;
  };
  await eventually('the numbers agree', isRight, ROLLED_UP_MAX_MS).catch(() => {
    throw new Error(`shown  ${last}\n  called ${expected}`);
  });
}

// The totals of 30 days, and today's line of the table, which must be the same: the tour has no yesterday.
async function numbersOfPage({ page }) {
  const numbers = (selector) => page.locator(selector).allTextContents().then((texts) => texts.map(number));
  const [admitted, refused] = (await numbers('#today .figures dd')).slice(-2);
  const reasons = await numbers('#reasons dd');
  const sums = { admitted, refused, ...Object.fromEntries(REASONS.map((reason, place) => [reason, reasons[place]])) };
  const today = await numbers('#days tbody tr:first-child td');
  if (JSON.stringify(today) !== JSON.stringify(Object.values(sums))) return { today, sums };
  return sums;
}

function numbersOfCsv(text) {
  const [head, ...lines] = text.trimEnd().split('\r\n');
  const columns = head.split(',');
  const column = (line, name) => Number(cells(line)[columns.indexOf(name)]);
  const rows = lines.map((line) => ({
    admitted: column(line, 'admitted'),
    ...Object.fromEntries(REASONS.map((reason) => [reason, column(line, `refused_${reason}`)])),
  }));
  return sumOf(rows);
}

function cells(line) {
  return line.match(/("([^"]|"")*"|[^,]*)(,|$)/g).map((cell) => cell.replace(/,$/, ''));
}

function sumOf(outcomes) {
  const sum = (outcome) => outcomes.reduce((total, counts) => total + (counts[outcome] ?? 0), 0);
  const reasons = Object.fromEntries(REASONS.map((reason) => [reason, sum(reason)]));
  const refused = Object.values(reasons).reduce((total, count) => total + count, 0);
  return { admitted: sum('admitted'), refused, ...reasons };
}

function number(text) {
  return Number(text.replaceAll(',', ''));
}

function toldOf({ admitted, refused, ...reasons }) {
  const told = Object.entries(reasons).filter(([, count]) => count > 0).map(([reason, count]) => `${count} ${reason}`);
  return `${admitted} answered, ${refused} refused (${told.join(', ')})`;
}
