// Usage: the explorer, its chart and its files match the requests that the tests made.

import { keyId } from '../cross_origin_client.mjs';
import { eventually } from '../wait.mjs';

const REASONS = ['burst', 'paused', 'inactive', 'day', 'wrong_secret', 'restricted'];
// Usage is flushed every two seconds.
const FLUSH_MAX_MS = 20_000;

export async function usage({ report, snapshots, api }, member) {
  const total = sumOf([...(await keyIdsOf(member))].map((id) => api.counts.get(id) ?? {}));
  const own = sumOf([api.counts.get(keyId(member.key))]);
  await report.check('the usage page shows successful requests, and rejected ones by reason', async () => {
    await member.visit('/keys');
    await member.follow('/usage');
    await expectNumbers(member, () => readPage(member), total);
    await snapshots.save(member.page, 'usage');
    return describe(total);
  });
  await report.check('the chart shows the same numbers', async () => {
    const [today] = await member.page.locator('svg.days g title').allTextContents().then((titles) => titles.slice(-1));
    const expected = `${total.admitted} successful, ${total.rejected} rejected`;
    if (!today.endsWith(expected)) throw new Error(`the last bar says “${today}”, not “${expected}”`);
  });
  if (member.scripted) await report.check('the chart shows the numbers of a day by mouse, touch and keyboard', () => chartTooltips(member));
  await report.check('the CSV and JSON files contain the same numbers', async () => {
    await expectNumbers(member, async () => readCsv(await member.download('/usage.csv?range=30d')), total);
    await expectNumbers(member, async () => readJson(await member.download('/usage.json?range=30d')), total);
  });
  await report.check('ranges, keys and outcomes can be selected, and the hours add up', () => explore(member, total, own));
  await report.check('an invalid range says what to do', async () => {
    await member.visit('/usage?from=2026-01-02&to=2026-01-01');
    const message = await member.page.locator('.error-message').textContent();
    if (!message.includes('Swap them')) throw new Error(`the page says “${message}”`);
    await snapshots.save(member.page, 'usage-invalid');
  });
  await report.check('the page and the CSV file of one key match as well', async () => {
    await member.visit(member.keyPath);
    await expectNumbers(member, () => readPage(member), own);
    await expectNumbers(member, async () => readCsv(await member.download(`${member.keyPath}/usage.csv`)), own);
    return describe(own);
  });
}

// All requests are of the last 24 hours, so each range has the same numbers.
async function explore(member, total, own) {
  const { page } = member;
  const id = keyId(member.key);
  const stats = () => page.locator('#today .stats dd').allTextContents().then((texts) => texts.map(parseNumber));
  const expect = async (what, numbers) => {
    const shown = JSON.stringify(await stats());
    if (shown !== JSON.stringify(numbers)) throw new Error(`${what} shows ${shown}, not ${JSON.stringify(numbers)}`);
  };
  await member.visit('/usage');
  for (const range of ['24h', '7d', '400d', '30d']) {
    await page.locator(`#range-${range}`).click();
    await page.waitForURL(`**/usage?range=${range}`);
    await expect(range, [total.admitted, total.rejected]);
  }
  await page.locator('#key').selectOption(id);
  await page.locator('#show-usage').click();
  await page.waitForURL(`**key=${id}**`);
  await expect('the key', [own.admitted, own.rejected]);
  const today = new Date().toISOString().slice(0, 10);
  await page.locator('#from').fill(today);
  await page.locator('#to').fill(today);
  await page.locator('#outcome').selectOption('admitted');
  await page.locator('#show-usage').click();
  await page.waitForURL(`**from=${today}**`);
  await expect('successful requests of today', [own.admitted]);
}

async function chartTooltips({ page }) {
  const chart = page.locator('svg.days');
  const titles = await chart.locator('g title').allTextContents();
  const tooltip = page.locator('.chart-tooltip:not([aria-hidden])');
  const expect = async (how, text) => {
    const shown = (await tooltip.isVisible()) ? await tooltip.textContent() : '';
    if (shown !== text) throw new Error(`${how} shows “${shown}”, not “${text}”`);
  };
  const { width, height } = await chart.boundingBox();
  const day = (index) => ({ x: ((index + 0.5) / titles.length) * width, y: height / 2 });
  await chart.hover({ position: day(3) });
  await expect('the mouse', titles[3]);
  await page.locator('h1').hover();
  await expect('the mouse elsewhere', '');
  const at = day(5);
  const { x, y } = await chart.boundingBox();
  await chart.dispatchEvent('pointerdown', { bubbles: true, pointerType: 'touch', clientX: x + at.x, clientY: y + at.y });
  await expect('a touch', titles[5]);
  await page.locator('h1').dispatchEvent('pointerdown', { bubbles: true, pointerType: 'touch' });
  await expect('a touch elsewhere', '');
  await page.locator('#json').focus();
  await page.keyboard.press('Tab');
  await expect('the focus', titles.at(-1));
  await page.keyboard.press('ArrowLeft');
  await expect('an arrow key', titles.at(-2));
  await page.keyboard.press('Home');
  await expect('Home', titles[0]);
  await page.keyboard.press('Escape');
  await expect('Escape', '');
}

async function keyIdsOf(member) {
  await member.visit('/keys');
  const codes = await member.page.locator('main code').allTextContents();
  return new Set(codes.filter((code) => /^ips_\w{10}$/.test(code)).map((code) => code.slice(4)));
}

// Reads until the numbers match, since the last seconds may not be flushed yet. With scripts the page updates itself.
async function expectNumbers(member, read, numbers) {
  const expected = JSON.stringify(numbers);
  let last;
  const matches = async () => {
    last = JSON.stringify(await read());
    if (last !== expected && !member.scripted) await member.page.reload();
    return last === expected;
  };
  await eventually('the numbers match', matches, FLUSH_MAX_MS).catch(() => {
    throw new Error(`shown    ${last}\n  expected ${expected}`);
  });
}

// The totals of 30 days. They must equal today's row, since the tests have no usage before today.
async function readPage({ page }) {
  const numbers = (selector) => page.locator(selector).allTextContents().then((texts) => texts.map(parseNumber));
  const [admitted, rejected] = (await numbers('#today .stats dd')).slice(-2);
  const reasons = await numbers('#reasons dd');
  const sums = { admitted, rejected, ...Object.fromEntries(REASONS.map((reason, index) => [reason, reasons[index]])) };
  const today = await numbers('#days tbody tr:first-child td');
  if (JSON.stringify(today) !== JSON.stringify(Object.values(sums))) return { today, sums };
  return sums;
}

function readCsv(text) {
  const [header, ...lines] = text.trimEnd().split('\r\n');
  const columns = header.split(',');
  const column = (line, name) => Number(cells(line)[columns.indexOf(name)]);
  const rows = lines.map((line) => ({
    admitted: column(line, 'admitted'),
    ...Object.fromEntries(REASONS.map((reason) => [reason, column(line, `rejected_${reason}`)])),
  }));
  return sumOf(rows);
}

function readJson(text) {
  const rows = JSON.parse(text).rows.map((row) => ({
    admitted: row.admitted,
    ...Object.fromEntries(REASONS.map((reason) => [reason, row[`rejected_${reason}`]])),
  }));
  return sumOf(rows);
}

function cells(line) {
  return line.match(/("([^"]|"")*"|[^,]*)(,|$)/g).map((cell) => cell.replace(/,$/, ''));
}

function sumOf(outcomes) {
  const sum = (outcome) => outcomes.reduce((total, counts) => total + (counts[outcome] ?? 0), 0);
  const reasons = Object.fromEntries(REASONS.map((reason) => [reason, sum(reason)]));
  const rejected = Object.values(reasons).reduce((total, count) => total + count, 0);
  return { admitted: sum('admitted'), rejected, ...reasons };
}

function parseNumber(text) {
  return Number(text.replaceAll(',', ''));
}

function describe({ admitted, rejected, ...reasons }) {
  const counts = Object.entries(reasons).filter(([, count]) => count > 0).map(([reason, count]) => `${count} ${reason}`);
  return `${admitted} successful, ${rejected} rejected (${counts.join(', ')})`;
}
