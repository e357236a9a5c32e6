// Alerts: by email, and a webhook whose signatures the reference library checks.

import { execFile } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { ROOT } from '../../deployment.mjs';
import { eventually } from '../wait.mjs';

const EMAIL_ALERTS = ['paused', 'resumed', 'near_burst_limit', 'near_daily_limit', 'daily_limit_reached', 'expiring'];
const DELIVERY_MAX_MS = 10_000;
const form = (action) => `form[action="${action}"]`;

export async function alerts({ report, snapshots, deployment }, member) {
  await report.check('each email alert can be turned off and on', async () => {
    await member.visit('/account');
    await member.follow('/account/alerts');
    await snapshots.save(member.page, 'alerts');
    for (const enabled of [false, true]) {
      await member.submit('/account/alerts', Object.fromEntries(EMAIL_ALERTS.map((name) => [name, enabled])));
      for (const name of EMAIL_ALERTS) {
        const isChecked = await member.page.locator(`${form('/account/alerts')} [name=${name}]`).isChecked();
        if (isChecked !== enabled) throw new Error(`${name} is ${isChecked ? 'on' : 'off'}`);
      }
    }
  });
  await report.check('a webhook to a private network is refused', async () => {
    await member.submit('/account/alerts/channels', { url: 'https://10.0.0.1/hook' });
    await member.expectText('Use a public address');
    await snapshots.save(member.page, 'alerts-rejected');
  });
  let channel;
  let secret;
  const received = () => readdirSync(deployment.webhooks).filter((name) => name.endsWith('.json'));
  const arrived = (count) => eventually(`${count} webhooks`, () => received().length >= count, DELIVERY_MAX_MS);
  const before = received().length;
  await report.check('a webhook can be added, and its secret is shown once', async () => {
    await member.visit('/account/alerts');
    await member.submit('/account/alerts/channels', { kind: 'webhook', url: deployment.webhookUrl });
    secret = await member.page.locator('#secret').innerText();
    await snapshots.save(member.page, 'alert-channel-new');
    await member.visit('/account/alerts');
    channel = await member.page.locator('a[href^="/account/alerts/"]').first().getAttribute('href');
    await member.follow(channel);
    if (await member.has('#secret')) throw new Error('the secret is shown again');
  });
  await report.check('a test alert arrives', async () => {
    await member.submit(`${channel}/test`);
    await arrived(before + 1);
    const [last] = received().sort().reverse();
    const { headers, body } = JSON.parse(readFileSync(path.join(deployment.webhooks, last), 'utf8'));
    if (JSON.parse(body).type !== 'test') throw new Error(body);
    await eventually('the delivery is listed', async () => {
      await member.visit(channel);
      return (await member.text()).includes('HTTP 204');
    }, DELIVERY_MAX_MS);
    await member.expectText(headers['webhook-id']);
    await snapshots.save(member.page, 'alert-channel');
  });
  await report.check('a delivery can be sent again', async () => {
    const again = await member.page.locator(`form[action^="${channel}/deliveries/"]`).first().getAttribute('action');
    await member.submit(again);
    await arrived(before + 2);
  });
  await report.check('the reference library accepts all signatures, and none by another secret', async () => {
    const verify = (key) => promisify(execFile)('python3', [path.join(ROOT, 'tools/e2e/webhook.py'), deployment.webhooks, key]);
    if (before === 0) await verify(secret);
    const other = `whsec_${Buffer.alloc(32).toString('base64')}`;
    const isAccepted = await verify(other).then(() => true, () => false);
    if (isAccepted) throw new Error('a wrong secret is accepted');
  });
  await report.check('the secret can be rotated and the channel deleted', async () => {
    await member.visit(channel);
    await member.submit(`${channel}/rotate`);
    const rotated = await member.page.locator('#secret').innerText();
    if (rotated === secret) throw new Error('the secret is the same');
    await member.submit(`${channel}/delete`);
    await member.expectText('Channel deleted');
  });
}
