// Debian's chromium without a window, by the library that the tour has installed.

import { createRequire } from 'node:module';
import path from 'node:path';

import { ROOT } from './house.mjs';

export const PROGRAM = '/usr/bin/chromium';

export function launch() {
  const { chromium } = createRequire(path.join(ROOT, 'tools/tour/package.json'))('playwright-core');
  return chromium.launch({ executablePath: PROGRAM, args: ['--headless', '--no-sandbox', '--disable-gpu'] });
}
