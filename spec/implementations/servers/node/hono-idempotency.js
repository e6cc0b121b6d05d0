// hono-idempotency as its README sets it up, with the account in cacheKeyPrefix.
const { createClient } = require('redis');
const { Hono } = require('hono');
const { getRequestListener } = require('@hono/node-server');
const { idempotency } = require('./built/index.js');
const { memoryStore } = require('./built/stores/memory.js');
const { redisStore } = require('./built/stores/redis.js');
const { account, answer, listen } = require('./fixture');

const lifetime = Number(process.env.LIFETIME || 0); // seconds

async function main() {
  let store = memoryStore(lifetime ? { ttl: 1000 * lifetime } : {});
  if (process.env.STORE === 'redis') {
    const client = await createClient({ url: process.env.REDIS_URL }).connect();
    store = redisStore(lifetime ? { client, ttl: lifetime } : { client });
  }
  const app = new Hono();
  app.use(async (c, next) => {
    const known = account(c.req.header('Authorization'));
    if (!known) return c.body(null, 401);
    c.set('account', known);
    await next();
  });
  app.use(idempotency({ store, required: true, cacheKeyPrefix: (c) => c.get('account') }));
  app.post('/charges', async (c) => {
    let request;
    try {
      request = await c.req.json();
    } catch {
      return c.json({ error: 'the body is not JSON' }, 400);
    }
    const { status, body, location } = await answer(c.get('account'), request);
    if (location) c.header('Location', location);
    return c.json(body, status);
  });
  app.post('/refunds', (c) => c.json({ error: 'no such charge' }, 404));
  listen(getRequestListener(app.fetch));
}
main();
