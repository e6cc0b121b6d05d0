// Uses /docs and the problem pages as a person would, see docs-check.sh.
import { chromium } from 'playwright-core';

const [, , executablePath, url, key, folder] = process.argv;
const context = await chromium.launchPersistentContext(`${folder}/profile`, {
  executablePath,
  viewport: { width: 1400, height: 1000 },
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
});
const faults = [];
context.setDefaultTimeout(20_000);
context.on('request', (request) => {
  const to = new URL(request.url());
  if (to.origin !== url && !['data:', 'blob:'].includes(to.protocol)) faults.push(`calls ${to.origin}`);
});
context.on('console', (message) => {
  if (message.type() === 'error') faults.push(`console: ${message.text()}`);
});

const page = context.pages()[0] ?? (await context.newPage());
await page.goto(`${url}/docs`);
await page.locator('input[placeholder=Token]:visible').first().fill(key);
await page.getByRole('button', { name: /Test Request.*post \/v1\/orders\)/is }).first().click();
const send = page.getByRole('button', { name: /^Send/ }).first();
const replays = [];
for (let time = 1; time <= 2; time++) {
  const answered = page.waitForResponse((response) => response.url() === `${url}/v1/orders`);
  await send.click();
  const answer = await answered;
  replays.push(answer.headers()['idempotent-replayed']);
  if (answer.status() !== 201) faults.push(`POST /v1/orders is ${answer.status()}: ${await answer.text()}`);
  await page.getByText('201 Created').first().waitFor();
}
if (replays[0] !== undefined || replays[1] !== 'true') faults.push(`replayed: ${replays}`);

for (const colorScheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme });
  await page.setViewportSize({ width: 360, height: 800 });
  await page.goto(`${url}/problems/payment-outcome-unknown`);
  for (const link of await page.locator('a').all()) {
    const href = await link.getAttribute('href');
    if (href.startsWith('/') && !(await page.request.get(url + href)).ok()) faults.push(`dead link ${href}`);
  }
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) faults.push('too wide for a phone');
}
await context.close();
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.log('/docs: Test Request made an order (201), and the same one again when sent twice; the problem pages fit a phone');
