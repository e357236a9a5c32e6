// Transfer size of each page for a browser with an empty cache.

import { eventually } from '../wait.mjs';

const BYTES_MAX = 120_000;

export async function pageSizes({ report, browser, deployment }, member, paths, state = '') {
  const cookies = await member.page.context().cookies();
  for (const path of paths) {
    await report.check(`${displayPath(path, member)}${state} transfers at most ${BYTES_MAX / 1000} kB`, async () => {
      const { bytes, count } = await measurePage(browser, new URL(path, deployment.portal).href, cookies);
      if (bytes > BYTES_MAX) throw new Error(`${bytes} bytes in ${count} requests`);
      return `${(bytes / 1000).toFixed(1)} kB in ${count} requests`;
    });
  }
}

export function displayPath(path, { keyPath }) {
  return path.replace(keyPath, '/keys/{id}');
}

async function measurePage(browser, url, cookies) {
  const context = await browser.context();
  await context.addCookies(cookies);
  const page = await context.newPage();
  const network = await context.newCDPSession(page);
  const open = new Set();
  let bytes = 0;
  let count = 0;
  await network.send('Network.enable');
  // An event stream stays open as long as the page.
  network.on('Network.requestWillBeSent', ({ requestId, type }) => type !== 'EventSource' && open.add(requestId));
  network.on('Network.loadingFailed', ({ requestId }) => open.delete(requestId));
  network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    open.delete(requestId);
    bytes += encodedDataLength;
    count += 1;
  });
  await page.goto(url);
  await page.evaluate(() => document.fonts.ready);
  await eventually('all requests have finished', () => open.size === 0);
  if (page.url() !== url) throw new Error(`redirected to ${page.url()}`);
  await context.close();
  return { bytes, count };
}
