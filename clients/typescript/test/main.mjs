// All tests against one running house; each suite is a file beside this one.

import { after, before, describe } from 'node:test';

import { House } from '../../../tools/house.mjs';
import { browser } from './browser.mjs';
import { refusals } from './refusals.mjs';
import { retries } from './retries.mjs';
import { scopes } from './scopes.mjs';
import { types } from './types.mjs';

const house = {};
before(async () => Object.assign(house, { own: await House.start() }));
after(() => house.own?.end());

describe('types', types);
describe('scopes', () => scopes(house));
describe('browser', () => browser(house));
describe('refusals', () => refusals(house));
describe('retries', () => retries(house));
