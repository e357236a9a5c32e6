// Restrictions: the form of a key's page, and the presets of a new key.

import { keyId } from '../cross_origin_client.mjs';
import { readKey } from './keys.mjs';

export async function restrictKey({ report, snapshots, api }, member) {
  const { key, keyPath } = member;
  const save = (fields) => member.submit(`${keyPath}/restrict`, fields);
  await report.check('invalid restrictions are shown with their reasons and not saved', async () => {
    await member.visit(keyPath);
    await save({ origins: 'shop.example', networks: '198.51.100.7/24', caller_limit: '100' });
    await member.expectText('shop.example is not an origin');
    await member.expectText('The network is 198.51.100.0/24');
    await snapshots.save(member.page, 'key-restrictions-invalid');
    await api.expect([key, 200]);
  });
  await report.check('restrictions apply to the next request', async () => {
    await save({ origins: 'https://Shop.example', networks: '127.0.0.0/8' });
    member.expectPath(keyPath);
    await member.expectText('Callers over IPv6 are rejected');
    await snapshots.save(member.page, 'key-restricted');
    await api.expect([key, 403]);
    await save({ origins: api.origin });
    await api.expect([key, 200]);
  });
  await report.check('empty fields remove all restrictions', async () => {
    await save({ origins: '', networks: '', caller_limit: '' });
    await api.expect([key, 200]);
    if (await member.has('.key-details a')) throw new Error('the key is still restricted');
  });
}

export async function restrictNewKey({ report, snapshots, api }, member) {
  await report.check('a new key for a web page works on its pages only', async () => {
    await member.visit('/keys/new');
    await member.submit('/keys', { name: 'Landing page', scope: 'ip', preset: 'web', origins: 'shop.example' });
    await member.expectText('shop.example is not an origin');
    await snapshots.save(member.page, 'key-new-invalid');
    await member.submit('/keys', { origins: api.origin });
    const key = await readKey(member);
    await api.expect([key, 200]);
    await member.visit('/keys');
    await member.expectText('Restricted');
    await snapshots.save(member.page, 'keys-restricted');
    const path = `/keys/${keyId(key)}`;
    await member.visit(`${path}/delete`);
    await member.submit(`${path}/delete`, { typed: keyId(key) });
    // Its usage was deleted as well.
    api.counts.delete(keyId(key));
  });
}
