// Every kept page, and those that anyone may see, in all forms: what axe finds, and pictures to look at.

import { FORMS } from '../gallery.mjs';

const AT_ONCE = 2;
// The two that share nothing.
const SHORT = FORMS.filter(({ width, scheme }) => (width === 'wide') === (scheme === 'light'));

export async function publicPages({ gallery }, stranger) {
  for (const path of ['/enterprise']) {
    await stranger.visit(path);
    await gallery.keep(stranger.page, path.slice(1));
  }
}

export async function looks({ report, gallery, options }) {
  for (const form of options.short ? SHORT : FORMS) {
    let views = [];
    await report.claim(`axe finds nothing grave on any page, ${form.width} and ${form.scheme}`, async () => {
      views = await inTurn(gallery.names, async (name) => ({ name, ...(await gallery.look(name, form)) }));
      none(views.flatMap(({ name, grave }) => grave.map((finding) => `${name}: ${finding}`)));
      const slight = new Set(views.flatMap((view) => view.slight));
      return `${views.length} pages${slight.size ? `; slight: ${[...slight].join(', ')}` : ''}`;
    });
    await report.claim(`no page is wider than its window, ${form.width} and ${form.scheme}`, async () => {
      none(views.filter(({ overflow }) => overflow > 0).map(({ name, overflow }) => `${name} by ${overflow} px`));
    });
  }
}

function none(findings) {
  if (findings.length) throw new Error(findings.join('\n'));
}

// All of them, a few at a time.
async function inTurn(items, act) {
  const results = [];
  const rest = [...items.entries()];
  const worker = async () => {
    for (let next = rest.shift(); next; next = rest.shift()) results[next[0]] = await act(next[1]);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}
