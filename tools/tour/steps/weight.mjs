// What each page weighs on its way to a browser that has nothing of it yet.

import { eventually } from '../wait.mjs';

const BYTES_MAX = 120_000;

export async function weight({ report, browser, house }, member, paths, state = '') {
  const cookies = await member.page.context().cookies();
  for (const path of paths) {
    await report.claim(`${named(path, member)}${state} weighs at most ${BYTES_MAX / 1000} kB`, async () => {
      const { bytes, count } = await weighed(browser, new URL(path, house.portal).href, cookies);
      if (bytes > BYTES_MAX) throw new Error(`${bytes} bytes in ${count} requests`);
      return `${(bytes / 1000).toFixed(1)} kB in ${count} requests`;
    });
  }
}

export function named(path, { keyPath }) {
  return path.replace(keyPath, '/keys/{id}');
}

async function weighed(browser, address, cookies) {
  const context = await browser.context();
  await context.addCookies(cookies);
  const page = await context.newPage();
  const network = await context.newCDPSession(page);
  const open = new Set();
  let bytes = 0;
  let count = 0;
  await network.send('Network.enable');
  // A stream of events stays open as long as the page does.
  network.on('Network.requestWillBeSent', ({ requestId, type }) => type !== 'EventSource' && open.add(requestId));
  network.on('Network.loadingFailed', ({ requestId }) => open.delete(requestId));
  network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    open.delete(requestId);
    bytes += encodedDataLength;
    count += 1;
  });
  await page.goto(address);
  await page.evaluate(() => document.fonts.ready);
  await eventually('all of it has come', () => open.size === 0);
  if (page.url() !== address) throw new Error(`led to ${page.url()}`);
  await context.close();
  return { bytes, count };
}
