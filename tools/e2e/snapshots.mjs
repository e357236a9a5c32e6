// Snapshots of pages during the tests, rendered later in light and dark, wide and narrow.
//
// A snapshot is the document, not its URL: a new key or a rejected form cannot be requested again.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const WIDTHS = { wide: 1440, narrow: 390 };
const SCHEMES = ['light', 'dark'];

export const VARIANTS = Object.keys(WIDTHS).flatMap((width) => SCHEMES.map((scheme) => ({ width, scheme })));

export class Snapshots {
  #saved = new Map();
  #contexts = new Map();

  constructor(browser, folder) {
    Object.assign(this, { browser, folder });
  }

  get names() {
    return [...this.#saved.keys()];
  }

  // Saves the current document. The first snapshot of a name is kept.
  async save(page, name) {
    if (!this.#saved.has(name)) this.#saved.set(name, { url: page.url().split('#')[0], html: await page.content() });
  }

  // Saves another page, opened in a new tab of the visitor.
  async saveUrl(visitor, url, name) {
    const tab = await visitor.newTab();
    await tab.visit(url);
    await this.save(tab.page, name);
    await tab.page.close();
  }

  // Renders a snapshot in one variant, takes a screenshot, and returns the axe violations and the horizontal overflow.
  async render(name, { width, scheme }) {
    const { url, html } = this.#saved.get(name);
    const page = await this.#newPage(width, scheme);
    // The document has already run its scripts and must not run them again.
    await page.route('**/*', (route) => {
      const type = route.request().resourceType();
      if (type === 'document') return route.fulfill({ contentType: 'text/html; charset=utf-8', body: html });
      return ['stylesheet', 'font', 'image'].includes(type) ? route.continue() : route.abort();
    });
    await page.goto(url);
    await page.evaluate(() => document.fonts.ready);
    await page.screenshot({ path: path.join(this.folder, `${name}.${width}.${scheme}.png`), fullPage: true });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
    await page.close();
    return { violations: violations.map(describe), overflow };
  }

  // One context per variant. It bypasses the CSP, which would block axe.
  async #newPage(width, scheme) {
    const name = `${width} ${scheme}`;
    if (!this.#contexts.has(name)) {
      const viewport = { width: WIDTHS[width], height: 900 };
      const options = { ignoreHTTPSErrors: true, bypassCSP: true, viewport, colorScheme: scheme, reducedMotion: 'reduce' };
      this.#contexts.set(name, this.browser.chromium.newContext(options));
    }
    return (await this.#contexts.get(name)).newPage();
  }
}

function describe({ id, impact, help, nodes }) {
  return `${impact} ${id}: ${help} (${nodes.slice(0, 3).map(({ target }) => target.join(' ')).join('; ')})`;
}
