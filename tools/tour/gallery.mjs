// Every page as it stood at some moment of the tour, kept to be looked at afterwards: light and dark, wide and narrow.
//
// What is kept is the document itself, not its address: a key in clear or a refused form could not be asked for again.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const WIDTHS = { wide: 1440, narrow: 390 };
const SCHEMES = ['light', 'dark'];

export const FORMS = Object.keys(WIDTHS).flatMap((width) => SCHEMES.map((scheme) => ({ width, scheme })));

export class Gallery {
  #kept = new Map();

  constructor(browser, folder) {
    Object.assign(this, { browser, folder });
  }

  get names() {
    return [...this.#kept.keys()];
  }

  // Keeps the page as it stands now; the first of a name stays.
  async keep(page, name) {
    if (!this.#kept.has(name)) this.#kept.set(name, { address: page.url().split('#')[0], html: await page.content() });
  }

  // Keeps another page, opened beside the visitor's own.
  async keepFrom(visitor, address, name) {
    const beside = await visitor.another();
    await beside.visit(address);
    await this.keep(beside.page, name);
    await beside.page.close();
  }

  // Shows a kept page in one form, saves a picture of it, and gives what axe finds grave in it.
  async look(name, { width, scheme }) {
    const { address, html } = this.#kept.get(name);
    const page = await this.#room(width, scheme);
    // The document has run its scripts already, and must not run them again.
    await page.route('**/*', (route) => {
      const kind = route.request().resourceType();
      if (kind === 'document') return route.fulfill({ contentType: 'text/html; charset=utf-8', body: html });
      return ['stylesheet', 'font', 'image'].includes(kind) ? route.continue() : route.abort();
    });
    await page.goto(address);
    await page.evaluate(() => document.fonts.ready);
    await page.screenshot({ path: path.join(this.folder, `${name}.${width}.${scheme}.png`), fullPage: true });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
    await page.close();
    const isGrave = ({ impact }) => impact === 'serious' || impact === 'critical';
    const slight = violations.filter((violation) => !isGrave(violation)).map(({ id }) => id);
    return { grave: violations.filter(isGrave).map(told), slight, overflow };
  }

  #rooms = new Map();

  // A window of its own for each form. Axe is a script of the tour, which the pages' policy would refuse.
  async #room(width, scheme) {
    const name = `${width} ${scheme}`;
    if (!this.#rooms.has(name)) {
      const viewport = { width: WIDTHS[width], height: 900 };
      const options = { ignoreHTTPSErrors: true, bypassCSP: true, viewport, colorScheme: scheme, reducedMotion: 'reduce' };
      this.#rooms.set(name, this.browser.own.newContext(options));
    }
    return (await this.#rooms.get(name)).newPage();
  }
}

function told({ id, impact, help, nodes }) {
  return `${impact} ${id}: ${help} (${nodes.slice(0, 3).map(({ target }) => target.join(' ')).join('; ')})`;
}
