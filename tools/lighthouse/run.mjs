// Rates the landing page, the documentation, the reference and the keys page with Lighthouse's mobile profile, and weighs the landing page.
//
// Usage: node run.mjs [--short]. `just lighthouse` builds and installs what it needs first. Reports go to target/lighthouse.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { launch } from 'chrome-launcher';
import lighthouse from 'lighthouse';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target');
const SCORE_MIN = 95;
const LANDING_BYTES_MAX = 150_000;
// What else the machine does can only lower a score: the best of some tries is nearest to the page's own.
const TRIES_MAX = 3;
const CATEGORIES = ['performance', 'accessibility', 'best-practices', 'seo'];
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--ignore-certificate-errors', '--disable-quic'];
const short = process.argv.includes('--short');

async function startHouse() {
  const house = spawn('setpriv', ['--pdeathsig', 'TERM', path.join(TARGET, 'debug/dev'), '--json'], { cwd: tmpdir(), stdio: ['ignore', 'pipe', 'ignore'] });
  const [line] = await once(createInterface({ input: house.stdout }), 'line');
  return { house, portal: JSON.parse(line).portal };
}

// One request; forms are sent as the portal's own pages would.
function ask(portal, method, target, { cookie = '', fields } = {}) {
  const headers = { cookie, ...(fields && { 'content-type': 'application/x-www-form-urlencoded', origin: portal, 'sec-fetch-site': 'same-origin' }) };
  return new Promise((resolve, reject) => {
    const request = https.request(new URL(target, portal), { method, headers, rejectUnauthorized: false }, (answer) => {
      let body = '';
      answer.on('data', (piece) => (body += piece)).on('end', () => {
        const set = (answer.headers['set-cookie'] ?? []).map((line) => line.split(';')[0]).join('; ');
        resolve({ status: answer.statusCode, body, cookie: set });
      });
    });
    request.on('error', reject);
    request.end(fields && new URLSearchParams(fields).toString());
  });
}

// Signs up, and gives the cookie of the session. Without mail the account is there at once.
async function signUp(portal) {
  const form = await ask(portal, 'GET', '/signup');
  const csrf = form.body.match(/name="csrf" value="([^"]+)"/)[1];
  const fields = { csrf, email: 'ada@example.com', password: 'a long way to Tipperary' };
  const done = await ask(portal, 'POST', '/signup', { cookie: form.cookie, fields });
  if (done.status !== 303) throw new Error(`signing up was answered with ${done.status}`);
  const session = done.cookie || form.cookie;
  const page = await ask(portal, 'GET', '/keys/new', { cookie: session });
  const token = page.body.match(/name="csrf" value="([^"]+)"/)[1];
  await ask(portal, 'POST', '/keys', { cookie: session, fields: { csrf: token, name: 'laptop', scope: 'full' } });
  return session;
}

async function rate(chrome, address, categories, cookie) {
  const extraHeaders = cookie ? { Cookie: cookie } : undefined;
  const { lhr, report } = await lighthouse(address, { port: chrome.port, onlyCategories: categories, output: 'html', logLevel: 'error', extraHeaders });
  const scores = Object.fromEntries(Object.values(lhr.categories).map(({ id, score }) => [id, Math.round(score * 100)]));
  const bytes = lhr.audits['network-requests']?.details?.items.reduce((sum, { transferSize = 0 }) => sum + transferSize, 0);
  const lost = Object.values(lhr.categories).flatMap(({ auditRefs }) => auditRefs.filter(({ weight }) => weight > 0).map(({ id }) => lhr.audits[id]))
    .filter(({ score }) => score !== null && score < 0.9).map(({ id, displayValue }) => `${id}${displayValue ? ` (${displayValue})` : ''}`);
  return { scores, bytes, report, lost, final: lhr.finalDisplayedUrl };
}

const { house, portal } = await startHouse();
const chrome = await launch({ chromePath: '/usr/bin/chromium', chromeFlags: FLAGS });
let failed = 0;
try {
  const cookie = await signUp(portal);
  const member = CATEGORIES.filter((category) => category !== 'seo');
  const pages = [['landing', '/', CATEGORIES], ['docs', '/docs', CATEGORIES], ['errors', '/docs/errors', CATEGORIES], ['reference', '/reference', CATEGORIES], ['keys', '/keys', member, cookie]];
  mkdirSync(path.join(TARGET, 'lighthouse'), { recursive: true });
  for (const [name, target, categories, session] of short ? pages.filter(([name]) => name !== 'errors') : pages) {
    const address = new URL(target, portal).href;
    let best;
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const found = await rate(chrome, address, categories, session);
      if (found.final !== address) throw new Error(`${address} led to ${found.final}`);
      const lowest = Math.min(...Object.values(found.scores));
      if (!best || lowest > best.lowest) best = { ...found, lowest };
      if (best.lowest >= SCORE_MIN) break;
    }
    writeFileSync(path.join(TARGET, 'lighthouse', `${name}.html`), best.report);
    const isLight = name !== 'landing' || best.bytes <= LANDING_BYTES_MAX;
    const isMet = best.lowest >= SCORE_MIN && isLight;
    failed += isMet ? 0 : 1;
    const scores = Object.entries(best.scores).map(([category, score]) => `${category} ${score}`).join(', ');
    console.log(`${isMet ? 'ok  ' : 'FAIL'} ${target}: ${scores}${best.bytes ? `; ${(best.bytes / 1000).toFixed(1)} kB` : ''}`);
    if (!isMet) console.log(`      lost: ${best.lost.join(', ')}`);
  }
} finally {
  await chrome.kill();
  house.kill('SIGTERM');
  await once(house, 'exit');
}
console.log(`lighthouse: ${failed} failed`);
process.exitCode = failed ? 1 : 0;
