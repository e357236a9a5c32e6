// A web page with tickets: the sample page shows its visitor's address, and the key stays on its server.

import { startWebPage } from '../../web_page_sample.mjs';
import { expectEqual } from './web_keys.mjs';

export async function webPage({ report, browser, deployment }) {
  const [url, key] = [deployment.portal, deployment.keys.geo];
  const env = { NODE_EXTRA_CA_CERTS: deployment.caFile };
  const origin = await startWebPage(deployment, deployment.folder, { key, url, env });
  const context = await browser.context();
  const page = await context.newPage();
  const sentHeaders = [];
  page.on('request', (request) => sentHeaders.push(JSON.stringify(request.headers())));
  const bodies = [];
  page.on('response', (response) => bodies.push(response.text().catch(() => '')));

  await report.check('a page gets a ticket from its server and shows its address', async () => {
    expectEqual((await textOf(page, origin)).split(' ')[0], '127.0.0.1');
  });
  await report.check('the browser gets a ticket and never the key', async () => {
    const [sent, received] = [sentHeaders.join('\n'), (await Promise.all(bodies)).join('\n')];
    expectEqual([sent.includes('Bearer ipt_'), received.includes('"ipt_')], [true, true]);
    expectEqual([sent.includes(key), received.includes(key)], [false, false]);
  });
  await report.check('a page of another origin cannot use the ticket', async () => {
    const text = await textOf(page, origin.replace('localhost', '127.0.0.1'));
    if (!text.includes('Origin header')) throw new Error(text);
  });
  await report.check('a page cannot create tickets, even with the key', async () => {
    const create = async ([url, key]) => {
      const options = { method: 'POST', headers: { authorization: `Bearer ${key}` } };
      const response = await fetch(`${url}/api/v1/tickets`, options);
      return [response.status, (await response.json()).error];
    };
    expectEqual(await page.evaluate(create, [url, key]), [403, 'origin_not_allowed']);
  });
  await context.close();
}

// Opens the page, and returns what it shows after its lookup.
async function textOf(page, origin) {
  await page.goto(`${origin}/`);
  await page.waitForFunction(() => document.querySelector('#me').textContent !== '…');
  return page.evaluate(() => document.querySelector('#me').textContent);
}
