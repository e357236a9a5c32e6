// Launches Debian's headless chromium with the copy of Playwright in the end-to-end tests.

import { createRequire } from 'node:module';
import path from 'node:path';

import { ROOT } from './deployment.mjs';

export const PROGRAM = '/usr/bin/chromium';

export function launch() {
  const { chromium } = createRequire(path.join(ROOT, 'tools/e2e/package.json'))('playwright-core');
  return chromium.launch({ executablePath: PROGRAM, args: ['--headless', '--no-sandbox', '--disable-gpu'] });
}
