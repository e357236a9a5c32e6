// Open pages count along, and leave those who use them in peace.

import { idOf } from '../elsewhere.mjs';
import { eventually } from '../wait.mjs';

export async function live({ report, elsewhere }, member) {
  const { page, hands, key, keyPath } = member;
  const id = idOf(key);
  await report.claim('the open list counts along, and the focus stays where it is', async () => {
    await member.visit('/keys');
    await hands.reach(page, `#open-${id}`);
    await countsAlong(page, `#key-${id} .key-use strong`, () => elsewhere.expect([key, 200]));
    const focused = await page.evaluate(() => document.activeElement.id);
    if (focused !== `open-${id}`) throw new Error(`the focus went to “${focused}”`);
  });
  await report.claim('what is half typed stays while the page of the key counts along', async () => {
    await member.visit(keyPath);
    await hands.type(page, `form[action="${keyPath}/rename"] [name=name]`, 'half a na');
    await countsAlong(page, '#today .key-use strong', () => elsewhere.expect([key, 200]));
    await page.keyboard.type('me');
    const typed = await page.locator(`form[action="${keyPath}/rename"] [name=name]`).inputValue();
    if (typed !== 'half a name') throw new Error(`the field holds “${typed}”`);
  });
}

async function countsAlong(page, selector, act) {
  const read = () => page.locator(selector).innerText();
  const before = await read();
  await act();
  await eventually('the page counts along', async () => (await read()) !== before);
}
