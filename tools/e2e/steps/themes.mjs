// Renders every snapshot in all variants: accessibility violations, overflow and screenshots.

import { VARIANTS } from '../snapshots.mjs';

const CONCURRENCY = 2;
// Wide and light, narrow and dark.
const SHORT = VARIANTS.filter(({ width, scheme }) => (width === 'wide') === (scheme === 'light'));

export async function saveEnterprisePage({ snapshots }, visitor) {
  await visitor.visit('/enterprise');
  await snapshots.save(visitor.page, 'enterprise');
}

export async function themes({ report, snapshots, options }) {
  for (const variant of options.short ? SHORT : VARIANTS) {
    let pages = [];
    await report.check(`axe finds no serious violation on any page, ${variant.width} and ${variant.scheme}`, async () => {
      pages = await mapConcurrently(snapshots.names, async (name) => ({ name, ...(await snapshots.render(name, variant)) }));
      expectNone(pages.flatMap(({ name, serious }) => serious.map((violation) => `${name}: ${violation}`)));
      const minor = new Set(pages.flatMap((page) => page.minor));
      return `${pages.length} pages${minor.size ? `; minor: ${[...minor].join(', ')}` : ''}`;
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
