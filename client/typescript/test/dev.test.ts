import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { apiKey, world } from './dev.js';
import { FaultyServer } from './faults.js';
import { buy, purchases } from './purchase.js';

const server = new FaultyServer();
let url = '';
before(async () => { url = await server.start(); });
after(() => server.stop());

const cards = ['pm_card_visa', 'pm_card_visa', 'pm_card_visa_chargeDeclined', 'pm_card_nobody', 'pm_card_threeDSecure2Required'];

test('a purchase at playground run is charged once, with one key', async () => {
  await fc.assert(fc.asyncProperty(purchases(cards), (plan) => buy(server, url, apiKey, 2000, world, plan)), { numRuns: 50 });
});
