// Headless Chromium with a temporary profile. Records console errors and policy violations of the pages.

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
const ACTION_MAX_MS = 20_000;

export class Browser {
  // Console errors of the portal's and the console's pages, including violations of their content security policy.
  consoleErrors = new Set();
  // Requests to other hosts.
  foreignRequests = new Set();
  // Pages without a content security policy.
  pagesWithoutCsp = new Set();

  // The profile goes into `folder`.
  static async start(deployment, folder) {
    const env = { ...process.env, TMPDIR: folder, HOME: folder };
    const browser = new Browser();
    // Playwright creates the profile there.
    process.env.TMPDIR = folder;
    // The test runner handles signals and closes the browser.
    const signals = { handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false };
    browser.chromium = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS, env, ...signals });
    browser.sites = [deployment.portal, deployment.console];
    return browser;
  }

  // A separate profile: cookies and cache of one person.
  async context(options = {}) {
    // The certificate is signed by the deployment's test CA.
    const context = await this.chromium.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 }, ...options });
    context.setDefaultTimeout(ACTION_MAX_MS);
    this.#watch(context);
    return context;
  }

  // Takes a screenshot of every open page of the portal and the console.
  async takeScreenshot(file) {
    const pages = this.chromium.contexts().flatMap((context) => context.pages());
    const ownPages = pages.filter((page) => this.sites.some((site) => page.url().startsWith(site)));
    for (const [number, page] of ownPages.entries()) {
      await page.screenshot({ path: `${file}${number ? `-${number}` : ''}.png`, fullPage: true });
    }
  }

  close() {
    return this.chromium.close();
  }

  #watch(context) {
    const rejected = new Set();
    const isOwn = (url) => this.sites.some((site) => url.startsWith(`${site}/`));
    context.on('response', async (response) => {
      if (!isOwn(response.url())) return;
      const isLookup = response.url().includes('/api/v1/ip');
      if (!response.request().isNavigationRequest() && !isLookup) return;
      if (response.status() >= 400 && response.status() < 500) rejected.add(response.url());
      const { 'content-security-policy': policy = '', 'content-type': type = '' } = response.headers();
      if (type.startsWith('text/html') && !policy.includes("default-src 'none'")) this.pagesWithoutCsp.add(response.url());
    });
    context.on('console', (message) => {
      if (message.type() !== 'error' || !isOwn(message.page()?.url() ?? '')) return;
      const { url } = message.location();
      // The browser logs every response of 400 and above. Rejected forms and lookups are expected.
      if (message.text().startsWith('Failed to load resource') && rejected.has(url)) return;
      // Another program changed a network interface of this machine.
      if (message.text().includes('ERR_NETWORK_CHANGED')) return;
      this.consoleErrors.add(`${message.text()} (${url})`);
    });
    context.on('weberror', (error) => {
      if (isOwn(error.page()?.url() ?? '')) this.consoleErrors.add(error.error().stack);
    });
    context.on('request', (request) => {
      const { protocol, hostname } = new URL(request.url());
      const isLocal = hostname === 'localhost' || hostname === '127.0.0.1';
      if (protocol.startsWith('http') && !isLocal && isOwn(frameUrl(request))) this.foreignRequests.add(request.url());
    });
  }
}

// A request of a service worker has no frame.
function frameUrl(request) {
  return request.serviceWorker() ? request.serviceWorker().url() : request.frame().url();
}
