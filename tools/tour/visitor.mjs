// Someone in front of a page: fills forms, follows links, reads. By which hands, and with script or without, is decided outside.

import { readFile } from 'node:fs/promises';

export class Visitor {
  constructor(page, hands, house) {
    Object.assign(this, { page, hands, house });
  }

  // The same person in another tab.
  async another() {
    const page = await this.page.context().newPage();
    return Object.assign(new Visitor(page, this.hands, this.house), { ...this, page });
  }

  // Types an address.
  async visit(path) {
    await this.page.goto(new URL(path, this.house.portal).href);
  }

  // Goes to a page by a link of the current one.
  async follow(path) {
    await this.#thenLoaded(() => this.hands.press(this.page, `a[href="${path}"] >> nth=0`));
    this.isAt(path);
  }

  // Downloads a file by a link of the current page, as text.
  async download(path) {
    const [download] = await Promise.all([this.page.waitForEvent('download'), this.hands.press(this.page, `a[href="${path}"]`)]);
    return readFile(await download.path(), 'utf8');
  }

  // Fills a form and sends it.
  async submit(action, fields = {}) {
    const form = `form[action="${action}"]`;
    for (const [name, value] of Object.entries(fields)) await this.#fill(`${form} [name="${name}"]:not([type=hidden])`, value);
    await this.#thenLoaded(() => this.hands.press(this.page, `${form} button:not([type=button])`));
  }

  // Does something that leads to another page, and waits until that has loaded.
  async #thenLoaded(act) {
    const loaded = this.page.waitForEvent('load');
    loaded.catch(() => {});
    await act();
    await loaded;
  }

  async #fill(field, value) {
    const { page, hands } = this;
    const kind = await page.locator(field).first().evaluate(({ tagName, type }) => (tagName === 'SELECT' ? 'select' : type));
    if (kind === 'select') return hands.pick(page, field, value);
    if (kind === 'radio') return hands.choose(page, field, value);
    if (kind === 'checkbox') return hands.tick(page, field, value);
    return hands.type(page, field, value);
  }

  // Where the page is, as a path.
  get path() {
    return new URL(this.page.url()).pathname;
  }

  isAt(path) {
    if (this.path !== path) throw new Error(`at ${this.path}, not at ${path}`);
  }

  // The page's text as a reader finds it.
  text() {
    return this.page.locator('main').innerText();
  }

  async reads(wanted) {
    const text = await this.text();
    if (!(wanted instanceof RegExp ? wanted.test(text) : text.includes(wanted))) {
      throw new Error(`${this.path} does not say ${wanted}; it says:\n${text}`);
    }
  }

  has(selector) {
    return this.page.locator(selector).count().then((count) => count > 0);
  }
}
