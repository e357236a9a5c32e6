// The client of the management API.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ManagementClient, ManagementError } from '../dist/manage.js';

export function manage(context) {
  const json = (body, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers });

  test('requests have the token, the method and a JSON body', async () => {
    const sent = [];
    const fetch = async (url, init) => {
      sent.push([init.method, String(url), init.headers.authorization, init.body]);
      return json({ status: 'success', key: { id: 'a' }, keys: [], secret: 'ips_x', days: [], channel: { id: 7 } });
    };
    const client = new ManagementClient({ baseUrl: 'https://ip.example/', token: 'ipm_x', fetch });
    assert.deepEqual(await client.listKeys(), []);
    assert.equal((await client.createKey({ name: 'shop', scope: 'ip' })).secret, 'ips_x');
    assert.equal((await client.updateKey('a', { is_active: false })).key.id, 'a');
    await client.rotateKey('a', 60);
    await client.deleteKey('../channels/7?a');
    assert.deepEqual(await client.usage('a&b'), []);
    assert.equal((await client.getChannel(7)).id, 7);
    const base = 'https://ip.example/api/v1/manage/keys';
    assert.deepEqual(sent, [
      ['GET', base, 'Bearer ipm_x', undefined],
      ['POST', base, 'Bearer ipm_x', '{"name":"shop","scope":"ip"}'],
      ['PATCH', `${base}/a`, 'Bearer ipm_x', '{"is_active":false}'],
      ['POST', `${base}/a/rotate`, 'Bearer ipm_x', '{"overlap_s":60}'],
      ['DELETE', `${base}/..%2Fchannels%2F7%3Fa`, 'Bearer ipm_x', undefined],
      ['GET', 'https://ip.example/api/v1/manage/usage?key=a%26b', 'Bearer ipm_x', undefined],
      ['GET', 'https://ip.example/api/v1/manage/channels/7', 'Bearer ipm_x', undefined],
    ]);
  });

  test('errors have code, status and the seconds to wait', async () => {
    const body = { error: 'rate_limit_exceeded', message: 'Try again.', docs: 'https://ip.example/docs/management#rate_limit_exceeded' };
    const fetch = async () => json(body, 429, { 'retry-after': '7' });
    const client = new ManagementClient({ baseUrl: 'https://ip.example', token: 'ipm_x', fetch });
    const error = await client.listKeys().then(assert.fail, (error) => error);
    assert(error instanceof ManagementError);
    assert.deepEqual([error.code, error.status, error.retryAfterS, error.message], ['rate_limit_exceeded', 429, 7, 'Try again.']);
  });

  test('the service rejects an unknown token', async () => {
    const client = new ManagementClient({ baseUrl: context.deployment.http, token: 'ipm_x' });
    const error = await client.listKeys().then(assert.fail, (error) => error);
    assert.deepEqual([error.code, error.status], ['invalid_token', 401]);
  });
}
