// A person at a page: fills in forms, follows links, reads. The caller chooses the input method and whether scripts run.

import { readFile } from 'node:fs/promises';

export class Visitor {
  constructor(page, input, deployment) {
    Object.assign(this, { page, input, deployment });
  }

  // The same person in another tab.
  async newTab() {
    const page = await this.page.context().newPage();
    return Object.assign(new Visitor(page, this.input, this.deployment), { ...this, page });
  }

  // Opens a URL.
  async visit(path) {
    await this.page.goto(new URL(path, this.deployment.portal).href);
  }

  // Follows a link of the current page.
  async follow(path) {
    await this.#andWaitForLoad(() => this.input.press(this.page, `a[href="${path}"] >> nth=0`));
    this.expectPath(path);
  }

  // Downloads a file through a link of the current page. Returns its text.
  async download(path) {
    const [download] = await Promise.all([this.page.waitForEvent('download'), this.input.press(this.page, `a[href="${path}"]`)]);
    return readFile(await download.path(), 'utf8');
  }

  // Fills in a form and submits it.
  async submit(action, fields = {}) {
    const form = `form[action="${action}"]`;
    for (const [name, value] of Object.entries(fields)) await this.#fill(`${form} [name="${name}"]:not([type=hidden])`, value);
    await this.#andWaitForLoad(() => this.input.press(this.page, `${form} button:not([type=button])`));
  }

  // Does something that opens another page, and waits until it has loaded.
  async #andWaitForLoad(act) {
    const loaded = this.page.waitForEvent('load');
    loaded.catch(() => {});
    await act();
    await loaded;
  }

  async #fill(field, value) {
    const { page, input } = this;
    const kind = await page.locator(field).first().evaluate(({ tagName, type }) => (tagName === 'SELECT' ? 'select' : type));
    if (kind === 'select') return input.selectOption(page, field, value);
    if (kind === 'radio') return input.chooseRadio(page, field, value);
    if (kind === 'checkbox') return input.setChecked(page, field, value);
    return input.type(page, field, value);
  }

  // The path of the current page.
  get path() {
    return new URL(this.page.url()).pathname;
  }

  expectPath(path) {
    if (this.path !== path) throw new Error(`at ${this.path}, expected ${path}`);
  }

  // The visible text of the page.
  text() {
    return this.page.locator('main').innerText();
  }

  async expectText(wanted) {
    const text = await this.text();
    if (!(wanted instanceof RegExp ? wanted.test(text) : text.includes(wanted))) {
      throw new Error(`${this.path} does not contain ${wanted}. Its text:\n${text}`);
    }
  }

  has(selector) {
    return this.page.locator(selector).count().then((count) => count > 0);
  }
}
