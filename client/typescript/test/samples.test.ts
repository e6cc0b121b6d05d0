// Runs the samples of examples/clients against "playground run", with faults in between.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { api, apiKey, get, world } from './dev.js';
import { FaultyServer, foreign } from './faults.js';

const order = (card: string, email = 'ada@example.com') =>
  JSON.stringify({ email, currency: 'usd', payment_method: card, items: [{ sku: 'tea', quantity: 2, unit_amount: 1250 }] });

// shortened copies a sample, with 4 instead of 90 seconds as the limit of an attempt.
function shortened(name: string): string {
  const [copy, text] = [join(mkdtempSync(join(tmpdir(), 'orders-sample-')), name), readFileSync(name, 'utf8')];
  assert.equal(text.match(/\b90\b/g)?.length, 1, name);
  writeFileSync(copy, text.replace(/\b90\b/, '4'));
  return copy;
}

for (const [name, command] of Object.entries<string[]>({
  'order.sh': ['sh', shortened('order.sh')],
  'order.py': ['python3', shortened('order.py')],
  'order.go': ['./order-go'],
  'order.ts': [process.execPath, 'build/order.js'],
})) {
  test(name, { concurrency: true, timeout: 300_000 }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'orders-sample-'));
    writeFileSync(join(folder, '.curlrc'), 'location\nretry = 3\n'); // a user's configuration of curl, which the sample must ignore
    const server = new FaultyServer();
    t.after(() => server.stop());
    server.api = world.api;
    const url = await server.start();
    const start = (path: string, file: string) => {
      const program = spawn(command[0]!, [...command.slice(1), path, join(folder, file)], { env: { ...process.env, CURL_HOME: folder, ORDERS_URL: url, ORDERS_API_KEY: apiKey } });
      const output = { stdout: '', stderr: '', status: -1 };
      program.stdout.on('data', (text) => { output.stdout += text; });
      program.stderr.on('data', (text) => { output.stderr += text; });
      const done = new Promise<typeof output>((resolve) => program.on('close', (status) => resolve({ ...output, status: status ?? -1 })));
      return { program, done };
    };
    const run = async (file: string, status: number, faults: string[] = [], path = '/v1/orders') => {
      server.plan = faults;
      server.calls = [];
      const output = await start(path, file).done;
      assert.equal(output.status, status, `${file}: ${output.stdout}${output.stderr}`);
      assert.ok(!(output.stdout + output.stderr).includes('client_secret'));
      for (const call of server.calls) {
        assert.equal(call.key, keyOf(file));
        assert.equal(call.path, path);
        assert.equal(call.body, readFileSync(join(folder, file), 'utf8'));
      }
      return output.stdout;
    };
    const write = (file: string, body: string) => writeFileSync(join(folder, file), body);
    const keyOf = (file: string) => readFileSync(join(folder, `${file}.key`), 'utf8').trim();

    write('faults', order('pm_card_visa'));
    const faults = ['no response', 'cut body', 'JSON of a firewall, before', 'redirect, after'];
    if (!['order.go', 'order.ts'].includes(name)) faults.push(...foreign); // the clients have tests of their own
    const first = await run('faults', 0, [...faults]);
    assert.equal(server.calls.length, faults.length + 1);
    assert.equal(await run('faults', 0), first);
    assert.equal(await world.charges(keyOf('faults')), 1);

    write('killed', order('pm_card_visa'));
    server.plan = ['never a response'];
    server.calls = [];
    const { program, done } = start('/v1/orders', 'killed');
    while (server.calls.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    const [{ key } = { key: '' }] = server.calls;
    program.kill('SIGKILL');
    await done;
    await run('killed', 0);
    assert.equal(keyOf('killed'), key);
    assert.equal(await world.charges(key), 1);

    write('twice', order('pm_card_visa'));
    await Promise.all([run('twice', 0), run('twice', 0)]);
    assert.equal(await world.charges(keyOf('twice')), 1);

    write('corrected', order('pm_card_visa', ''));
    await run('corrected', 1);
    const before = keyOf('corrected');
    write('corrected', order('pm_card_visa'));
    await run('corrected', 0);
    assert.equal(keyOf('corrected'), before);
    assert.equal(await world.charges(before), 1);

    write('declined', order('pm_card_visa_chargeDeclined'));
    await run('declined', 1);
    await run('declined', 1);
    assert.equal(await world.charges(keyOf('declined')), 0);

    write('approved', order('pm_card_threeDSecure2Required'));
    await run('approved', 3);
    const { action } = await get(`${api}/v1/idempotency-keys/${keyOf('approved')}`, apiKey);
    await world.customer(action, true);
    await run('approved', 0);

    write('left', order('pm_card_threeDSecure2Required'));
    await run('left', 3);
    const { order: left } = await get(`${api}/v1/idempotency-keys/${keyOf('left')}`, apiKey);
    write('cancel', '{}');
    const canceled = await run('cancel', 0, ['no response', 'redirect, after', 'cut body without a length'], `${left.href}/cancel`);
    assert.equal(JSON.parse(canceled).status, 'payment_failed');
    assert.equal(await run('cancel', 0, [], `${left.href}/cancel`), canceled);
  });
}
