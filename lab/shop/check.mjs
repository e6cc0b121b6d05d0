// Tests the example shop, see check.sh. After each scenario, the fake's ledger must have
// exactly the charges that the customer saw as paid.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const [, , executablePath, url, control, , pictures] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const problems = [];
let scenarios = 0;

const post = async (path) => {
  const response = await fetch(control + path, { method: 'POST' });
  if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
};
const charges = async () => await (await fetch(`${control}/charges`)).json() ?? [];

// A customer has cookies of their own, and remembers what the pages said.
class Customer {
  orders = new Map(); // amount by order, of the pages that said "paid"

  constructor(name, context) { Object.assign(this, { name, context }); }

  expect(good, what) { if (!good) problems.push(`${this.name}: ${what}`); }

  async tab(address = url) {
    const page = await this.context.newPage();
    await page.goto(address);
    return page;
  }

  async fill(page, quantities = { 'Green tea': 2 }) {
    for (const [item, n] of Object.entries(quantities)) await page.getByLabel(item).fill(String(n));
    await page.getByRole('button', { name: 'Go to payment' }).click();
    await page.getByRole('heading', { name: 'Payment' }).waitFor();
    return page;
  }

  async card(page, effect = 'is charged') {
    await page.getByLabel('Email').fill('ada@example.com');
    await page.getByLabel(new RegExp(`\\d ${effect}$`)).check();
  }

  async pay(page, effect) {
    await this.card(page, effect);
    await page.getByRole('button', { name: /^Pay \$/ }).click();
  }

  async answer(page, decision) {
    await page.getByRole('dialog').getByRole('button', { name: decision }).click();
  }

  // paid waits for the result, and remembers it.
  async paid(page) {
    await page.getByRole('heading', { name: 'Thank you' }).waitFor();
    const text = await page.locator('.result').innerText();
    const order = await page.locator('#order').innerText();
    this.orders.set(order, Number(/\$(\d+\.\d\d)/.exec(text)[1]) * 100);
    return order;
  }

  // failed waits for a message that says that nothing was paid.
  async failed(page, message) {
    await page.getByRole('alert').filter({ hasText: message }).waitFor();
    await page.getByRole('button', { name: /^Pay \$/ }).waitFor();
  }

  async accessible(page, where) {
    const session = await this.context.newCDPSession(page);
    const { frameTree } = await session.send('Page.getFrameTree');
    const world = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id }); // the page's CSP stays enabled
    const run = (expression) => session.send('Runtime.evaluate', { expression, contextId: world.executionContextId, awaitPromise: true, returnByValue: true });
    await run(axe);
    const { result } = await run(`axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })
      .then(({ violations, passes }) => ({ passes: passes.length, violations: violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join(' | ')) }))`);
    this.expect(result.value?.passes > 10, `${where}: axe-core did not run`);
    for (const violation of result.value?.violations ?? []) this.expect(false, `${where}: ${violation.slice(0, 400)}`);
    await session.detach();
  }

  // look checks a page at three widths, light, dark and without the page's colours.
  async look(page, where) {
    for (const [width, media] of [[320, {}], [390, { colorScheme: 'dark' }], [1200, {}], [390, { forcedColors: 'active' }]]) {
      const variant = `${where}-${width}${Object.values(media).map((value) => `-${value}`).join('')}`;
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme: 'light', forcedColors: 'none', ...media });
      this.expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${variant}: the page is too wide`);
      if (!media.forcedColors) await this.accessible(page, variant);
      if (pictures) await page.screenshot({ path: `${pictures}/${variant}.png`, fullPage: true });
    }
    await page.emulateMedia({ colorScheme: 'light', forcedColors: 'none' });
    await page.setViewportSize({ width: 1200, height: 800 });
  }
}

async function scenario(name, work) {
  const before = await charges();
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: 'reduce' });
  context.setDefaultTimeout(20_000);
  const customer = new Customer(name, context);
  context.on('weberror', (error) => customer.expect(customer.ignoresErrors, `script: ${error.error().message}`));
  context.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) problems.push(`${name}: ${message.text()}`);
  });
  try {
    await work(customer);
    const page = await customer.tab(); // at the end, the storefront shows the same
    const last = [...customer.orders.keys()].at(-1);
    if (last) await page.getByText('You have paid').waitFor();
    customer.expect((await page.content()).includes('You have paid') === Boolean(last), 'the storefront shows another result');
  } catch (error) {
    problems.push(`${name}: ${error.message.split('\n').slice(0, 4).join(' ')}`);
    const pages = context.pages();
    if (pictures && pages.length > 0) await pages.at(-1).screenshot({ path: `${pictures}/failed-${scenarios}.png`, timeout: 5000 }).catch(() => {});
  }
  await context.close();
  const made = (await charges()).slice(before.length);
  const ledger = made.map((charge) => `${charge.metadata.order_id} ${charge.amount}`).sort().join();
  const seen = [...customer.orders].map(([order, amount]) => `${order} ${amount}`).sort().join();
  customer.expect(ledger === seen, `the customer saw [${seen}], the ledger has [${ledger}]`);
  scenarios += 1;
}

const progress = (page, text) => page.getByRole('status').filter({ hasText: text }).waitFor();

await scenario('pay', async (c) => {
  const page = await c.tab();
  await c.look(page, 'storefront');
  await c.fill(page, { 'Green tea': 1, Kettle: 2 });
  await c.look(page, 'payment');
  await c.pay(page);
  await c.paid(page);
  await c.look(page, 'paid');
  c.expect(c.orders.values().next().value === 9850, 'the total is wrong');
});

await scenario('decline, then another card', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page, 'is declined');
  await c.failed(page, 'insufficient funds');
  await c.look(page, 'declined');
  await page.reload();
  await c.failed(page, 'insufficient funds');
  await c.pay(page);
  await c.paid(page);
});

await scenario('approve', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page, 'needs your approval');
  await page.getByRole('dialog').waitFor();
  await c.look(page, 'approval');
  c.expect(!(await page.content()).includes('_secret_'), 'the page contains the client secret');
  await c.answer(page, 'Approve');
  await c.paid(page);
});

await scenario('decline the approval', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page, 'needs your approval');
  await c.answer(page, 'Decline');
  await c.failed(page, 'authentication');
});

await scenario('approve, and the card is declined', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page, 'needs your approval, and is declined');
  await c.answer(page, 'Approve');
  await c.failed(page, 'insufficient funds');
});

await scenario('close the window of the approval', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page, 'needs your approval');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('alert').filter({ hasText: 'not approved the payment yet' }).waitFor();
  await c.look(page, 'not-approved');
  await page.getByRole('button', { name: 'Approve the payment' }).click();
  await c.answer(page, 'Approve');
  await c.paid(page);
});

await scenario('close the tab during the approval, and come back', async (c) => {
  const first = await c.fill(await c.tab());
  await c.pay(first, 'needs your approval');
  await first.getByRole('dialog').waitFor();
  await first.close();
  const page = await c.tab();
  await c.look(page, 'in-progress');
  await page.getByRole('link', { name: 'Continue the payment' }).click();
  await c.answer(page, 'Approve');
  await c.paid(page);
});

await scenario('close the tab during the approval, and approve elsewhere', async (c) => {
  const first = await c.fill(await c.tab());
  const asked = first.waitForResponse((response) => response.url().endsWith('/pay'));
  await c.pay(first, 'needs your approval');
  const { client_secret: secret } = await (await asked).json();
  const stripe = new URL(await first.locator('script').first().getAttribute('src')).origin;
  const address = first.url();
  await first.getByRole('dialog').waitFor();
  await first.close();
  const approved = await fetch(`${stripe}/customer/${secret.split('_secret_')[0]}/approve`, { method: 'POST', body: new URLSearchParams({ client_secret: secret }) });
  c.expect(approved.ok, 'not approved');
  const page = await c.tab();
  while (!(await page.content()).includes('You have paid')) { // the loop of the shop
    await page.waitForTimeout(300);
    await page.reload();
  }
  await page.goto(address);
  await c.paid(page);
});

await scenario('reload at every point', async (c) => {
  const page = await c.tab();
  await page.reload();
  await c.fill(page);
  await page.reload();
  await post('/slow/1500ms'); // the confirm that asks for the approval
  await c.pay(page, 'needs your approval');
  await progress(page, 'in progress');
  await page.reload();
  await page.getByRole('dialog').waitFor();
  await page.reload();
  await c.answer(page, 'Approve');
  await c.paid(page);
  await page.reload();
  await c.paid(page);
});

await scenario('leave while the card is charged', async (c) => {
  const first = await c.fill(await c.tab());
  await post('/slow/1500ms');
  await c.pay(first);
  await progress(first, 'in progress');
  const address = first.url();
  await first.close();
  const page = await c.tab(address); // the payment may be in progress still
  await c.paid(page);
});

await scenario('double click', async (c) => {
  const page = await c.fill(await c.tab());
  await c.card(page);
  await page.getByRole('button', { name: /^Pay \$/ }).dblclick();
  await c.paid(page);
});

await scenario('submit twice at once', async (c) => {
  const page = await c.fill(await c.tab());
  await c.card(page);
  await page.evaluate(() => { for (let i = 0; i < 2; i += 1) document.querySelector('form').requestSubmit(); });
  await c.paid(page);
});

await scenario('two tabs of one basket', async (c) => {
  const first = await c.fill(await c.tab());
  const second = await c.tab(first.url());
  await c.card(first);
  await c.card(second);
  const buttons = [first, second].map((page) => page.getByRole('button', { name: /^Pay \$/ }));
  await Promise.all(buttons.map((button) => button.click()));
  const orders = await Promise.all([first, second].map((page) => c.paid(page)));
  c.expect(orders[0] === orders[1], 'the tabs show two orders');
});

await scenario('two tabs, one approves and the other declines', async (c) => {
  const first = await c.fill(await c.tab());
  await c.pay(first, 'needs your approval');
  await first.getByRole('dialog').waitFor();
  const second = await c.tab(first.url());
  await second.getByRole('dialog').waitFor();
  await c.answer(first, 'Approve');
  await c.paid(first);
  await c.answer(second, 'Decline');
  await c.paid(second);
});

await scenario('the basket changes in another tab', async (c) => {
  const first = await c.fill(await c.tab());
  await c.fill(await c.tab(), { 'Green tea': 1, Mug: 1 });
  await c.pay(first);
  await c.failed(first, 'has changed in another tab');
  await first.reload();
  await c.pay(first);
  await c.paid(first);
  c.expect(c.orders.values().next().value === 2150, 'the total is wrong');
});

await scenario('back button after success', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page);
  await c.paid(page);
  await page.goBack();
  await page.getByText('You have paid').waitFor();
  await page.goForward();
  await c.paid(page);
  await page.getByRole('link', { name: 'Buy something else' }).click();
  await page.getByText('You have paid').waitFor();
  await page.goBack();
  await c.paid(page);
});

await scenario('the API is killed while paying', async (c) => {
  const page = await c.fill(await c.tab());
  await post('/slow/1500ms');
  await c.pay(page);
  await progress(page, 'in progress');
  await page.waitForTimeout(500);
  await post('/kill/api');
  await progress(page, 'We do not know yet');
  await c.look(page, 'unknown');
  await post('/start/api');
  await c.paid(page);
});

await scenario('the API is killed, and the customer leaves', async (c) => {
  const first = await c.fill(await c.tab());
  await post('/kill/api');
  await c.pay(first);
  await progress(first, 'in progress');
  const address = first.url();
  await first.close();
  await post('/start/api');
  const page = await c.tab();
  while (!(await page.content()).includes('You have paid')) {
    await page.waitForTimeout(300);
    await page.reload();
  }
  await page.goto(address);
  await c.paid(page);
});

await scenario('the shop is killed while paying', async (c) => {
  const page = await c.fill(await c.tab());
  await post('/slow/1500ms');
  await c.pay(page);
  await progress(page, 'in progress');
  await page.waitForTimeout(500);
  await post('/kill/shop');
  await progress(page, 'connection to the shop is lost');
  await post('/start/shop');
  await c.paid(page);
});

await scenario('the shop is killed, and the page is reloaded', async (c) => {
  const first = await c.fill(await c.tab());
  const address = first.url();
  await post('/slow/1500ms');
  await c.pay(first);
  await progress(first, 'in progress');
  await first.waitForTimeout(500);
  await post('/kill/shop');
  await first.reload().catch(() => {}); // shows the browser's own error page
  await first.close();
  await post('/start/shop');
  await c.paid(await c.tab(address));
});

await scenario('the network is cut before the request', async (c) => {
  const page = await c.fill(await c.tab());
  await page.route('**/pay', (route) => route.abort(), { times: 2 });
  await c.pay(page);
  await progress(page, 'connection to the shop is lost');
  await c.look(page, 'lost');
  await c.paid(page);
});

await scenario('the network is cut before the request, and the customer leaves', async (c) => {
  const first = await c.fill(await c.tab());
  await first.route('**/pay', (route) => route.abort());
  await c.pay(first);
  await progress(first, 'connection to the shop is lost');
  const address = first.url();
  await first.close();
  const page = await c.tab(address); // it says that nothing is paid
  await page.getByRole('button', { name: /^Pay \$/ }).waitFor();
});

await scenario('the network is cut after the request', async (c) => {
  const page = await c.fill(await c.tab());
  await page.route('**/pay', async (route) => {
    await route.fetch();
    await route.abort();
  }, { times: 1 });
  await c.pay(page);
  await progress(page, 'connection to the shop is lost');
  await c.paid(page);
});

await scenario('the response is cut', async (c) => {
  const page = await c.fill(await c.tab());
  await page.route('**/pay', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ status: 200, body: (await response.text()).slice(0, 20) });
  }, { times: 1 });
  await c.pay(page);
  await c.paid(page);
});

await scenario('Stripe cannot be reached during the approval', async (c) => {
  const page = await c.fill(await c.tab());
  await page.route('**/customer/**', (route) => route.abort(), { times: 1 });
  await c.pay(page, 'needs your approval');
  await c.answer(page, 'Approve');
  await page.getByRole('button', { name: 'Approve the payment' }).click();
  await c.answer(page, 'Approve');
  await c.paid(page);
});

await scenario('Stripe.js cannot be loaded', async (c) => {
  c.ignoresErrors = true; // the script stops
  const page = await c.tab();
  await page.route('**/v3/', (route) => route.abort());
  await c.fill(page);
  await page.getByRole('alert').filter({ hasText: 'Stripe cannot be reached' }).waitFor();
  await page.unroute('**/v3/');
  await page.reload();
  await c.pay(page, 'needs your approval');
  await page.getByRole('dialog').waitFor();
  await page.route('**/v3/', (route) => route.abort());
  await page.reload();
  await progress(page, 'in progress');
  await page.unroute('**/v3/');
  await page.reload();
  await c.answer(page, 'Approve');
  await c.paid(page);
});

await scenario('a second purchase after the first', async (c) => {
  const page = await c.fill(await c.tab());
  await c.pay(page);
  const first = await c.paid(page);
  await page.getByRole('link', { name: 'Buy something else' }).click();
  await c.fill(page);
  await c.pay(page);
  c.expect(await c.paid(page) !== first, 'the second purchase replays the first one');
});

await scenario('only the keyboard', async (c) => {
  const page = await c.tab();
  const focused = (what) => page.evaluate((expected) => document.activeElement.id === expected || document.activeElement.textContent.startsWith(expected)
    || document.activeElement.name === expected, what);
  const tabTo = async (what) => {
    for (let i = 0; i < 12; i += 1) {
      await page.keyboard.press('Tab');
      if (await focused(what)) return;
    }
    c.expect(false, `Tab does not reach ${what}`);
  };
  const visible = () => page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none');
  await tabTo('tea');
  await page.keyboard.press('ArrowUp');
  c.expect(await visible(), 'the focus is not visible');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Payment' }).waitFor();
  await tabTo('email');
  await page.keyboard.type('ada@example.com');
  await tabTo('card');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await tabTo('Pay');
  c.expect(await visible(), 'the focus is not visible');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  c.expect(await focused('Approve'), 'the dialog has no focus');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Approve the payment' }).waitFor();
  c.expect(await focused('continue'), 'the focus is lost after the dialog');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Enter');
  await c.paid(page);
});

await browser.close();
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`/shop: all ${scenarios} scenarios pass; axe-core finds no violation, light and dark, at 320, 390 and 1200 pixels`);
