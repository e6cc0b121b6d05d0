// Runs requests with the client of @hey-api/openapi-ts.
import { createClient } from './hey/client/index.js';
import { cancelOrder, createOrder, createRefund, listOrders } from './hey/index.js';
import { run } from './scenario.mjs';

const keyed = (key: string) => ({ 'Idempotency-Key': key });

await run((baseUrl, headers) => {
  const client = createClient({ baseUrl, headers });
  return {
    create: (key, body) => createOrder({ client, headers: keyed(key), body }),
    refund: (key, id) => createRefund({ client, path: { id }, headers: keyed(key), body: {} }),
    cancel: (key, id) => cancelOrder({ client, path: { id }, headers: keyed(key), body: {} }),
    list: (limit) => listOrders({ client, query: { limit } }),
  };
});
