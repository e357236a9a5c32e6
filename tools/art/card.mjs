// Draws the social card (1200 × 630) and favicon.ico with Debian's chromium.
//
// Usage: node card.mjs. Writes crates/portal/assets/card.png and favicon.ico.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ASSETS = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../crates/portal/assets');
const dir = mkdtempSync(path.join(tmpdir(), 'card-'));

function screenshot(html, file, width, height) {
  const page = path.join(dir, 'page.html');
  writeFileSync(page, html);
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--default-background-color=00000000', `--user-data-dir=${dir}`];
  execFileSync('/usr/bin/chromium', [...flags, `--screenshot=${file}`, `--window-size=${width},${height}`, `file://${page}`], { stdio: 'ignore' });
}

const world = new Map(readFileSync(path.join(ASSETS, 'world.tsv'), 'utf8').trimEnd().split('\n').map((line) => line.split('\t')));
const mark = '<path d="M13.2 3.1A9 9 0 1 0 20.9 10.8" fill="none" stroke="#eeeff1" stroke-width="2.4" stroke-linecap="round"/><circle cx="18.4" cy="5.6" r="2.9" fill="#93a0ff"/>';
const card = `<!doctype html><meta charset="utf-8"><style>
@font-face { font-family: Geist; src: url("file://${ASSETS}/fonts/geist.woff2"); font-weight: 400 700; }
@font-face { font-family: Mono; src: url("file://${ASSETS}/fonts/geist-mono.woff2"); font-weight: 400 700; }
* { margin: 0; } body { width: 1200px; height: 630px; overflow: hidden; background: #0c0d0f; color: #eeeff1; font: 400 30px/1.4 Geist; position: relative; }
.world { position: absolute; left: 40px; top: 128px; width: 1120px; } .words { position: absolute; left: 72px; right: 72px; top: 60px; }
.brand { display: flex; align-items: center; gap: 18px; font-weight: 600; font-size: 34px; letter-spacing: -.02em; } .brand svg { width: 44px; }
h1 { position: absolute; left: 72px; bottom: 112px; font-size: 62px; line-height: 1.08; letter-spacing: -.035em; font-weight: 600; }
p { position: absolute; left: 72px; bottom: 56px; color: #b3b7be; font: 400 26px/1.4 Mono; } p b { color: #93a0ff; font-weight: 500; }
.shade { position: absolute; inset: 0; background: linear-gradient(transparent 30%, #0c0d0fd0 66%, #0c0d0f 90%); }
</style><svg class="world" viewBox="0 0 2000 868"><path fill="#24272d" d="${world.get('land')}"/><path fill="none" stroke="#0c0d0f" stroke-width="1.5" d="${world.get('borders')}"/>
<circle cx="1012" cy="150" r="56" fill="#93a0ff" fill-opacity=".16"/><circle cx="1012" cy="150" r="13" fill="#93a0ff" stroke="#0c0d0f" stroke-width="5"/></svg>
<div class="shade"></div><div class="words"><div class="brand"><svg viewBox="0 0 24 24">${mark}</svg>Ipseity</div></div>
<h1>Who you are on the network,<br>in one GET.</h1><p><b>GET</b> /api/v1/ip</p>`;
screenshot(card, path.join(ASSETS, 'card.png'), 1200, 630);

// An icon file may contain a PNG: a header of 6 bytes, an entry of 16 bytes, the image.
const picture = path.join(dir, 'icon.png');
const side = 48;
const ink = mark.replace('#eeeff1', '#3b4bdc').replace('#93a0ff', '#3b4bdc');
screenshot(`<!doctype html><style>*{margin:0}svg{display:block;width:${side}px}</style><svg viewBox="0 0 24 24">${ink}</svg>`, picture, side, side);
const png = readFileSync(picture);
const head = Buffer.alloc(22);
head.writeUInt16LE(1, 2);
head.writeUInt16LE(1, 4);
head.writeUInt8(side, 6);
head.writeUInt8(side, 7);
head.writeUInt16LE(1, 10);
head.writeUInt16LE(32, 12);
head.writeUInt32LE(png.length, 14);
head.writeUInt32LE(head.length, 18);
writeFileSync(path.join(ASSETS, 'favicon.ico'), Buffer.concat([head, png]));
rmSync(dir, { recursive: true, force: true });
