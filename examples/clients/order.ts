// Sends the JSON in FILE exactly once: node order.js PATH FILE. FILE.key stores the key.
//   node order.js /v1/orders order-77.json
//   node order.js /v1/orders/ORDER_ID/cancel cancel-9.json
// After a crash, or to correct FILE, run it again: the key stays.
import { closeSync, existsSync, fsyncSync, linkSync, openSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { newKey, Orders } from './orders.js'; // a copy of client/typescript/orders.ts

// storedKey returns the key of a request, and creates it at the first call. The key is on disk
// before anything is sent.
function storedKey(file: string): string {
  if (!existsSync(file)) {
    const unfinished = `${file}.${process.pid}`;
    writeFileSync(unfinished, newKey(), { flush: true });
    try {
      linkSync(unfinished, file); // unlike a rename, does not replace the key of another run
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    unlinkSync(unfinished);
  }
  const folder = openSync(dirname(file), 'r'); // always, because the run that created the key may have stopped before its sync
  fsyncSync(folder);
  closeSync(folder);
  return readFileSync(file, 'utf8');
}

const [path = '', file = ''] = process.argv.slice(2);
const key = storedKey(`${file}.key`);
const orders = new Orders({ baseUrl: process.env.ORDERS_URL ?? '', apiKey: process.env.ORDERS_API_KEY ?? '' });
const success = path.endsWith('/cancel') ? 200 : 201; // a cancel creates nothing
const result = await orders.send({ key, path, body: readFileSync(file, 'utf8'), success });
switch (result.kind) {
  case 'created':
  case 'done':
    console.log(JSON.stringify(result.value));
    break;
  case 'action-required':
    console.error(`The customer must approve ${result.action.payment_intent_id}. Then run this again.`);
    process.exitCode = 3;
    break;
  case 'declined':
  case 'refused':
    console.error('Final: the key is used. Another card needs another FILE.', result.problem);
    process.exitCode = 1;
    break;
  default:
    console.error('Rejected. An earlier attempt may have succeeded: keep the key.', result);
    process.exitCode = 1;
}
