// Debian's chromium, without a window, with a profile that is removed at the end, and everything that its pages complain of.

import { chromium } from 'playwright-core';

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const ACT_MAX_MS = 20_000;

export class Browser {
  // What pages of the portal wrote to the console as an error, violations of their content security policy among it.
  complaints = new Set();
  // Requests to hosts that are not ours.
  strangers = new Set();
  // Pages without a content security policy.
  unguarded = new Set();

  // The profile goes into `folder`.
  static async start(house, folder) {
    const env = { ...process.env, TMPDIR: folder, HOME: folder };
    const browser = new Browser();
    // Where playwright makes the profile.
    process.env.TMPDIR = folder;
    // Signals end the tour, and the tour ends the browser.
    const signals = { handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false };
    browser.own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS, env, ...signals });
    browser.portal = house.portal;
    return browser;
  }

  // A browser of one person: own cookies, own cache.
  async context(options = {}) {
    // The certificate's authority is known to nobody but the house.
    const context = await this.own.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 }, ...options });
    context.setDefaultTimeout(ACT_MAX_MS);
    this.#watch(context);
    return context;
  }

  // Shows every open page of the portal.
  async picture(file) {
    const pages = this.own.contexts().flatMap((context) => context.pages());
    const own = pages.filter((page) => page.url().startsWith(this.portal));
    for (const [number, page] of own.entries()) {
      await page.screenshot({ path: `${file}${number ? `-${number}` : ''}.png`, fullPage: true });
    }
  }

  end() {
    return this.own.close();
  }

  #watch(context) {
    const refused = new Set();
    const isOwn = (address) => address.startsWith(`${this.portal}/`);
    context.on('response', async (response) => {
      if (!isOwn(response.url())) return;
      const isCall = response.url().includes('/api/v1/ip');
      if (!response.request().isNavigationRequest() && !isCall) return;
      if (response.status() >= 400 && response.status() < 500) refused.add(response.url());
      const { 'content-security-policy': policy = '', 'content-type': kind = '' } = response.headers();
      if (kind.startsWith('text/html') && !policy.includes("default-src 'none'")) this.unguarded.add(response.url());
    });
    context.on('console', (message) => {
      if (message.type() !== 'error' || !isOwn(message.page()?.url() ?? '')) return;
      const { url } = message.location();
      // The browser notes every page with a status of 400 and above; forms and calls that are refused have one on purpose.
      if (message.text().startsWith('Failed to load resource') && refused.has(url)) return;
      // Another program has changed an interface of this machine.
      if (message.text().includes('ERR_NETWORK_CHANGED')) return;
      this.complaints.add(`${message.text()} (${url})`);
    });
    context.on('weberror', (error) => {
      if (isOwn(error.page()?.url() ?? '')) this.complaints.add(error.error().stack);
    });
    context.on('request', (request) => {
      const { protocol, hostname } = new URL(request.url());
      const isLocal = hostname === 'localhost' || hostname === '127.0.0.1';
      if (protocol.startsWith('http') && !isLocal) this.strangers.add(request.url());
    });
  }
}
