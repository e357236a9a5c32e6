// Runs all tests against one deployment; each suite is a file in this directory.

import { after, before, describe } from 'node:test';

import { Deployment } from '../../../tools/deployment.mjs';
import { browser } from './browser.mjs';
import { errors } from './errors.mjs';
import { manage } from './manage.mjs';
import { pairing } from './pairing.mjs';
import { retries } from './retries.mjs';
import { scopes } from './scopes.mjs';
import { testKeys } from './test_keys.mjs';
import { tickets } from './tickets.mjs';
import { types } from './types.mjs';

// Suites are declared before the deployment runs, so they get an object that is filled later.
const context = {};
before(async () => Object.assign(context, { deployment: await Deployment.start() }));
after(() => context.deployment?.stop());

describe('types', types);
describe('scopes', () => scopes(context));
describe('browser', () => browser(context));
describe('errors', () => errors(context));
describe('manage', () => manage(context));
describe('pairing', () => pairing(context));
describe('retries', () => retries(context));
describe('test keys', () => testKeys(context));
describe('tickets', () => tickets(context));
