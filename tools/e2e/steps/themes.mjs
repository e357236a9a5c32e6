// Renders every snapshot in all variants: accessibility violations, overflow and screenshots.

import { VARIANTS } from '../snapshots.mjs';

const CONCURRENCY = 2;
// Wide and light, narrow and dark.
const SHORT = VARIANTS.filter(({ width, scheme }) => (width === 'wide') === (scheme === 'light'));

export async function savePlainPages({ snapshots }, visitor) {
  for (const name of ['enterprise', 'status']) {
    await visitor.visit(`/${name}`);
    await snapshots.save(visitor.page, name);
  }
}

export async function themeChoice({ report }, visitor) {
  await report.check('the chosen theme applies immediately and on every page, until the reader returns to that of the system', async () => {
    const { page } = visitor;
    const expect = async (scheme, choice) => {
      const found = [await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), await page.inputValue('#theme')];
      if (found.join() !== [scheme, choice].join()) throw new Error(`${found} instead of ${[scheme, choice]}`);
    };
    await visitor.visit('/enterprise');
    for (const theme of ['dark', 'light']) {
      await visitor.input.selectOption(page, '#theme', theme);
      await expect(theme, theme);
      await visitor.visit('/docs');
      await expect(theme, theme);
    }
    await visitor.input.selectOption(page, '#theme', 'system');
    await visitor.visit('/enterprise');
    await expect('light dark', 'system');
  });
}

export async function themes({ report, snapshots, options }) {
  for (const variant of options.short ? SHORT : VARIANTS) {
    let pages = [];
    await report.check(`axe finds no violation on any page, ${variant.width} and ${variant.scheme}`, async () => {
      pages = await mapConcurrently(snapshots.names, async (name) => ({ name, ...(await snapshots.render(name, variant)) }));
      expectNone(pages.flatMap(({ name, violations }) => violations.map((violation) => `${name}: ${violation}`)));
      return `${pages.length} pages`;
    });
    await report.check(`no page overflows horizontally, ${variant.width} and ${variant.scheme}`, async () => {
      expectNone(pages.filter(({ overflow }) => overflow > 0).map(({ name, overflow }) => `${name} by ${overflow} px`));
    });
  }
}

function expectNone(findings) {
  if (findings.length) throw new Error(findings.join('\n'));
}

async function mapConcurrently(items, act) {
  const results = [];
  const rest = [...items.entries()];
  const worker = async () => {
    for (let next = rest.shift(); next; next = rest.shift()) results[next[0]] = await act(next[1]);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return results;
}
