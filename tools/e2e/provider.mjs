// What a person does on the pages of the OpenID Connect provider.

import { eventually } from './wait.mjs';

// Signs in and consents on the pages of the provider, until it leads back to `site`.
export async function signInAtProvider(page, site, login) {
  const isBack = () => page.url().startsWith(`${site}/`) && !/\/providers?\//.test(page.url());
  await eventually('the way back from the provider', async () => {
    if (isBack()) return true;
    const button = page.locator('form button[type=submit]');
    if (!page.url().includes('/interaction/') || (await button.count()) === 0) return false;
    const field = page.locator('[name=login]');
    if (await field.count()) {
      await field.fill(login);
      await page.locator('[name=password]').fill('any');
    }
    await Promise.all([page.waitForEvent('load'), button.click()]);
    return isBack();
  });
}
