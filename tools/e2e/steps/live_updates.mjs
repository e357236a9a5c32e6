// Open pages update themselves without disturbing the reader.

import { keyId } from '../cross_origin_client.mjs';
import { eventually } from '../wait.mjs';

export async function liveUpdates({ report, api }, member) {
  const { page, input, key, keyPath } = member;
  const id = keyId(key);
  await report.check('the open list updates its counts and keeps the focus', async () => {
    await member.visit('/keys');
    await input.focus(page, `#open-${id}`);
    await expectCountChange(page, `#key-${id} .key-usage strong`, () => api.expect([key, 200]));
    const focused = await page.evaluate(() => document.activeElement.id);
    if (focused !== `open-${id}`) throw new Error(`the focus moved to “${focused}”`);
  });
  await report.check('typed text stays while the page of a key updates its counts', async () => {
    await member.visit(keyPath);
    await input.type(page, `form[action="${keyPath}/rename"] [name=name]`, 'half a na');
    await expectCountChange(page, '#today .key-usage strong', () => api.expect([key, 200]));
    await page.keyboard.type('me');
    const typed = await page.locator(`form[action="${keyPath}/rename"] [name=name]`).inputValue();
    if (typed !== 'half a name') throw new Error(`the field contains “${typed}”`);
  });
}

async function expectCountChange(page, selector, act) {
  const read = () => page.locator(selector).innerText();
  const before = await read();
  await act();
  await eventually('the page updates its count', async () => (await read()) !== before);
}
