// Code in the documentation: tabs that remember the language, the reader's key, and the layout of narrow screens.

const NARROW = { width: 390, height: 844 };
const REFERENCE_HEIGHT_MAX = 5_000;

const shownCode = (page) => page.locator('.code-tab:visible').evaluateAll((tabs) => tabs.map(({ dataset }) => dataset.language));

export async function docsCode(context, visitor) {
  const { report, snapshots, deployment } = context;
  const { page } = visitor;
  await report.check('all code is in the language that was chosen last, on every page', async () => {
    await visitor.visit('/docs/samples');
    if ((await shownCode(page)).join() !== 'curl') throw new Error(`${await shownCode(page)} is shown first`);
    await visitor.input.chooseRadio(page, '.languages input', 'ruby');
    if ((await shownCode(page)).join() !== 'ruby') throw new Error(`${await shownCode(page)} is shown after a choice`);
    await visitor.input.chooseRadio(page, '.languages input', 'node');
    await snapshots.save(page, 'docs-samples-node');
    await visitor.visit('/reference');
    const shown = await shownCode(page);
    if (shown.join() !== 'javascript') throw new Error(`${shown}`);
    await visitor.visit('/docs/samples#python');
    if ((await shownCode(page)).join() !== 'python') throw new Error(`${await shownCode(page)} is shown for a link to Python`);
    await page.evaluate(() => localStorage.clear());
  });
  await report.check('the reader’s key is filled into the code, and stays in the page', async () => {
    const key = deployment.keys.ip;
    const requests = [];
    page.on('request', (request) => requests.push(request.url() + (request.postData() ?? '') + JSON.stringify(request.headers())));
    await visitor.visit('/docs');
    await page.locator('.key-field summary').click();
    const code = page.locator('#code-1-curl');
    const before = await code.textContent();
    await visitor.input.type(page, '#your-key', '"; rm -rf /');
    if ((await code.textContent()) !== before) throw new Error('text that is no key is in the code');
    if (!(await page.locator('#your-key-error').textContent())) throw new Error('no message says so');
    await page.locator('#your-key').fill('');
    await visitor.input.type(page, '#your-key', key);
    if ((await code.textContent()) !== before.replace('<API_KEY>', key)) throw new Error(await code.textContent());
    await snapshots.save(page, 'docs-key');
    const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
    await visitor.visit('/docs');
    if ((await code.textContent()) !== before || stored.includes(key)) throw new Error('the key is stored');
    if (requests.some((request) => request.includes(key))) throw new Error('the key was sent');
  });
  await report.check('on a narrow screen, a menu above the page lists all pages, and sections of the reference are closed', async () => {
    const tab = await visitor.newTab();
    await tab.page.setViewportSize(NARROW);
    await tab.visit('/docs/limits');
    await tab.page.locator('.docs-menu summary').click();
    await snapshots.save(tab.page, 'docs-menu');
    await tab.page.locator('.docs-menu a[href="/docs/recipes"]').click();
    await tab.page.waitForURL(/\/docs\/recipes$/);
    await tab.visit('/reference');
    const height = await tab.page.evaluate(() => document.documentElement.scrollHeight);
    if (height > REFERENCE_HEIGHT_MAX) throw new Error(`${height} px`);
    await tab.page.locator('.reference-menu summary').click();
    await tab.page.locator('.reference-menu a[href="#IpResponse"]').click();
    if ((await tab.page.locator('.reference-section[open]').count()) !== 2) throw new Error('the linked section is not open');
    await snapshots.save(tab.page, 'reference-section');
    await tab.page.close();
    return `${height} px`;
  });
}
