// Two ways to use a page: by keyboard alone, and by mouse.

const TABS_MAX = 80;
const ARROWS_MAX = 20;

// Presses Tab until an element has the focus, as someone without a mouse would.
class Keyboard {
  // Elements that took the focus without showing it.
  unseen = new Set();

  async press(page, selector) {
    await this.reach(page, selector);
    await page.keyboard.press('Enter');
  }

  async type(page, selector, text) {
    await this.reach(page, selector);
    await page.keyboard.press('Control+A');
    await page.keyboard.type(text);
  }

  async tick(page, selector, wanted) {
    await this.reach(page, selector);
    if ((await page.locator(selector).isChecked()) !== wanted) await page.keyboard.press('Space');
  }

  // One of a group of radio buttons: Tab reaches the group, arrows move within it.
  async choose(page, selector, value) {
    await this.reach(page, selector);
    const isChosen = (wanted) => document.activeElement.value === wanted && document.activeElement.checked;
    await repeat(page, 'ArrowDown', ARROWS_MAX, `the choice of ${value}`, () => page.evaluate(isChosen, value));
  }

  async pick(page, selector, value) {
    await this.reach(page, selector);
    await page.keyboard.press('Home');
    const isPicked = async () => (await page.locator(selector).inputValue()) === value;
    await repeat(page, 'ArrowDown', ARROWS_MAX, `the option ${value}`, isPicked);
  }

  // Moves the focus to an element, by Tab.
  async reach(page, selector) {
    const wanted = page.locator(selector);
    await wanted.first().waitFor({ state: 'attached' });
    await this.#unfold(page, wanted.first());
    const hasFocus = () => wanted.evaluateAll((elements) => elements.includes(document.activeElement));
    await repeat(page, 'Tab', TABS_MAX, selector, hasFocus);
    if (!(await page.evaluate(showsFocus))) this.unseen.add(`${selector} on ${new URL(page.url()).pathname}`);
  }

  // What lies in a closed <details> is opened by its summary first.
  async #unfold(page, wanted) {
    const folded = wanted.locator('xpath=ancestor::details[not(@open)]/summary');
    if ((await folded.count()) === 0) return;
    const hasFocus = () => folded.first().evaluate((summary) => summary === document.activeElement);
    await repeat(page, 'Tab', TABS_MAX, 'a summary', hasFocus);
    await page.keyboard.press('Enter');
  }
}

class Mouse {
  async press(page, selector) {
    await this.#show(page, selector);
    await page.locator(selector).click();
  }

  async type(page, selector, text) {
    await this.#show(page, selector);
    await page.locator(selector).fill(text);
  }

  async tick(page, selector, wanted) {
    await this.#show(page, selector);
    if ((await page.locator(selector).isChecked()) !== wanted) await labelOf(page, selector).click();
  }

  async choose(page, selector, value) {
    await this.#show(page, selector);
    await labelOf(page, `${selector}[value="${value}"]`).click();
  }

  async pick(page, selector, value) {
    await this.#show(page, selector);
    await page.locator(selector).selectOption(value);
  }

  // Brings the tab to the front, and opens what hides the element.
  async #show(page, selector) {
    await page.bringToFront();
    const folded = page.locator(selector).first().locator('xpath=ancestor::details[not(@open)]/summary');
    if ((await folded.count()) > 0) await folded.first().click();
  }
}

// What a hand aims at: the small box itself may be drawn by its label.
function labelOf(page, selector) {
  return page.locator(selector).locator('xpath=ancestor::label');
}

export const keyboard = new Keyboard();
export const mouse = new Mouse();

async function repeat(page, key, countMax, what, isThere) {
  for (let count = 0; count <= countMax; count += 1) {
    if (await isThere()) return;
    await page.keyboard.press(key);
  }
  throw new Error(`not reached with ${countMax} times ${key}: ${what}`);
}

// Runs in the page: whether the focused element, or the label around it, is drawn in another way than without the focus.
function showsFocus() {
  const { activeElement } = document;
  const places = [[activeElement], [activeElement, '::before'], [activeElement, '::after'], [activeElement.closest('label') ?? activeElement]];
  const drawn = () => {
    const transitions = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    transitions.forEach((transition) => transition.finish());
    const styles = places.map((place) => getComputedStyle(...place));
    return styles.map(({ outline, boxShadow, borderColor }) => [outline, boxShadow, borderColor].join()).join();
  };
  const focused = drawn();
  activeElement.blur();
  const blurred = drawn();
  activeElement.focus();
  return focused !== blurred;
}
