// idempot-js: its middleware for Express, with its stores for Redis and PostgreSQL, as their
// READMEs set them up.
import express from 'express';
import Redis from 'ioredis';
import pg from 'pg';
import { idempotency } from './source/idempot-js/packages/frameworks/express/index.js';
import { RedisIdempotencyStore } from './source/idempot-js/packages/stores/redis/node-redis.js';
import { PostgresIdempotencyStore } from './source/idempot-js/packages/stores/postgres/index.js';
import fixture from './fixture.js';

const { account, answer, listen } = fixture;
async function open() {
  if (process.env.STORE === 'redis') return new RedisIdempotencyStore({ client: new Redis(process.env.REDIS_URL) });
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  const store = new PostgresIdempotencyStore({ pool });
  // The constructor returns before its table and then its two indexes exist.
  const created = async () => (await pool.query("SELECT to_regclass('idx_expires_at') IS NOT NULL AS done")).rows[0].done;
  while (!await created()) await new Promise((resolve) => setTimeout(resolve, 10));
  return store;
}

const store = await open();
const lifetime = process.env.LIFETIME ? { ttlMs: 1000 * process.env.LIFETIME } : {};

const app = express();
app.use((req, res, next) => {
  req.account = account(req.get('Authorization'));
  if (!req.account) return res.sendStatus(401);
  next();
});
app.use(express.json());
// The middleware refuses a body that it has had with another key ("Fingerprint Conflict" in its
// error reference), and the command sends the same body with many keys.
app.use((req, res, next) => {
  req.body.order = req.get('Idempotency-Key');
  next();
});
app.use(idempotency({ store, ...lifetime }));
app.post('/charges', async (req, res, next) => {
  try {
    const { status, body, location } = await answer(req.account, req.body);
    if (location) res.location(location);
    res.status(status).json(body);
  } catch (error) {
    next(error);
  }
});
app.post('/refunds', (req, res) => res.status(404).json({ error: 'no such charge' }));
listen(app);
