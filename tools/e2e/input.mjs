// Two ways to operate a page: keyboard only, and mouse.

const TABS_MAX = 80;
const ARROWS_MAX = 20;

// Presses Tab until an element has the focus.
class Keyboard {
  // Focused elements without a visible focus indicator.
  withoutFocusStyle = new Set();

  async press(page, selector) {
    await this.focus(page, selector);
    await page.keyboard.press('Enter');
  }

  async type(page, selector, text) {
    await this.focus(page, selector);
    await page.keyboard.press('Control+A');
    await page.keyboard.press('Backspace');
    await page.keyboard.type(text);
  }

  async setChecked(page, selector, checked) {
    await this.focus(page, selector);
    if ((await page.locator(selector).isChecked()) !== checked) await page.keyboard.press('Space');
  }

  // Selects a radio button: Tab focuses the group, arrow keys move within it.
  async chooseRadio(page, selector, value) {
    await this.focus(page, selector);
    const isChosen = (wanted) => document.activeElement.value === wanted && document.activeElement.checked;
    await pressUntil(page, 'ArrowDown', ARROWS_MAX, `the radio button ${value}`, () => page.evaluate(isChosen, value));
  }

  async selectOption(page, selector, value) {
    await this.focus(page, selector);
    await page.keyboard.press('Home');
    const isSelected = async () => (await page.locator(selector).inputValue()) === value;
    await pressUntil(page, 'ArrowDown', ARROWS_MAX, `the option ${value}`, isSelected);
  }

  // Moves the focus to an element with Tab.
  async focus(page, selector) {
    const target = page.locator(selector);
    await target.first().waitFor({ state: 'attached' });
    await this.#openDetails(page, target.first());
    const hasFocus = () => target.evaluateAll((elements) => elements.includes(document.activeElement));
    await pressUntil(page, 'Tab', TABS_MAX, selector, hasFocus);
    if (!(await page.evaluate(hasFocusStyle))) this.withoutFocusStyle.add(`${selector} on ${new URL(page.url()).pathname}`);
  }

  // Opens the <details> that contains an element.
  async #openDetails(page, target) {
    const summary = target.locator('xpath=self::*[not(self::summary)]/ancestor::details[not(@open)]/summary');
    if ((await summary.count()) === 0) return;
    const hasFocus = () => summary.first().evaluate((element) => element === document.activeElement);
    await pressUntil(page, 'Tab', TABS_MAX, 'a summary', hasFocus);
    await page.keyboard.press('Enter');
  }
}

class Mouse {
  async press(page, selector) {
    await this.#reveal(page, selector);
    await page.locator(selector).click();
  }

  async type(page, selector, text) {
    await this.#reveal(page, selector);
    await page.locator(selector).fill(text);
  }

  async setChecked(page, selector, checked) {
    await this.#reveal(page, selector);
    if ((await page.locator(selector).isChecked()) !== checked) await labelOf(page, selector).click();
  }

  async chooseRadio(page, selector, value) {
    await this.#reveal(page, selector);
    await labelOf(page, `${selector}[value="${value}"]`).click();
  }

  async selectOption(page, selector, value) {
    await this.#reveal(page, selector);
    await page.locator(selector).selectOption(value);
  }

  // Brings the tab to the front and opens the <details> that contains the element.
  async #reveal(page, selector) {
    await page.bringToFront();
    const summary = page.locator(selector).first().locator('xpath=self::*[not(self::summary)]/ancestor::details[not(@open)]/summary');
    if ((await summary.count()) > 0) await summary.first().click();
  }
}

// People click the label; the input itself may be invisible.
function labelOf(page, selector) {
  return page.locator(selector).locator('xpath=ancestor::label');
}

export const keyboard = new Keyboard();
export const mouse = new Mouse();

async function pressUntil(page, key, countMax, what, condition) {
  for (let count = 0; count <= countMax; count += 1) {
    if (await condition()) return;
    await page.keyboard.press(key);
  }
  throw new Error(`not reached after pressing ${key} ${countMax} times: ${what}`);
}

// Runs in the page: whether the focused element, or its label, looks different from the same element without focus.
function hasFocusStyle() {
  const { activeElement } = document;
  const targets = [[activeElement], [activeElement, '::before'], [activeElement, '::after'], [activeElement.closest('label') ?? activeElement]];
  const appearance = () => {
    const transitions = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    transitions.forEach((transition) => transition.finish());
    const styles = targets.map((target) => getComputedStyle(...target));
    return styles.map(({ outline, boxShadow, borderColor }) => [outline, boxShadow, borderColor].join()).join();
  };
  const focused = appearance();
  activeElement.blur();
  const blurred = appearance();
  activeElement.focus();
  return focused !== blurred;
}
