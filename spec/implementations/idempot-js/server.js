// idempot-js: its middleware for Express, with its stores for Redis and PostgreSQL, as their
// READMEs set them up.
import express from 'express';
import Redis from 'ioredis';
import pg from 'pg';
import { idempotency } from './source/idempot-js/packages/frameworks/express/index.js';
import { RedisIdempotencyStore } from './source/idempot-js/packages/stores/redis/node-redis.js';
import { PostgresIdempotencyStore } from './source/idempot-js/packages/stores/postgres/index.js';
import fixture from '../fixtures/node/fixture.js';

const { account, answer, listen } = fixture;
const store = process.env.STORE === 'redis'
  ? new RedisIdempotencyStore({ client: new Redis(process.env.REDIS_URL) })
  : new PostgresIdempotencyStore({ pool: new pg.Pool({ connectionString: process.env.DATABASE_URL }) });
const lifetime = process.env.LIFETIME ? { ttlMs: 1000 * process.env.LIFETIME } : {};

const app = express();
app.use((req, res, next) => {
  req.account = account(req.get('Authorization'));
  if (!req.account) return res.sendStatus(401);
  next();
});
app.use(express.json());
// The middleware refuses a body that it has had with another key. The orders of a shop differ.
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
