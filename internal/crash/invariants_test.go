package crash_test

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// invariant must hold after every case. Its query returns the violations.
type invariant struct{ name, query string }

// The names of invariants from which a plan has an exception.
const (
	providerKeyReused = "a provider key used for two orders or two different requests (R5)"
	moreIntents       = "more than one intent created for an order (R5)"
)

func invariants() []invariant {
	return []invariant{
		{"an order charged more than once", `
SELECT order_id
  FROM observed.intent
 GROUP BY order_id
HAVING sum(successes) > 1`},

		{"a response 201 without a paid order that was charged once, for its amount", `
SELECT h.op::text
  FROM observed.http h
  LEFT JOIN orders o USING (account_id, idempotency_key)
  LEFT JOIN observed.intent i ON i.id = o.payment_intent_id
 WHERE h.status = 201
   AND NOT EXISTS (SELECT FROM refunds r WHERE r.account_id = h.account_id AND r.idempotency_key = h.idempotency_key)
   AND (o.paid_at IS NOT NULL
        AND i.status = 'succeeded'
        AND i.successes = 1
        AND i.amount = o.amount
        AND i.currency = o.currency
        AND h.body::json->>'id' = o.id::text
        AND (h.body::json->>'amount')::bigint = o.amount) IS NOT TRUE`},

		{"a charge without a paid order and a response 201", `
SELECT i.id
  FROM observed.intent i
  LEFT JOIN orders o ON o.payment_intent_id = i.id
  LEFT JOIN idempotency_keys k ON k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key
 WHERE i.successes > 0
   AND i.key_id NOT IN (SELECT id FROM idempotency_keys WHERE expired_at IS NOT NULL) -- by reconcile, which leaves the charge to an operator
   AND (o.paid_at IS NULL OR k.response_code IS DISTINCT FROM 201)`},

		{"our total of charges differs from the provider's", `
SELECT concat_ws(' ', currency, recorded, charged)
  FROM (SELECT currency, sum(amount) AS recorded FROM orders WHERE paid_at IS NOT NULL GROUP BY 1) o
  FULL JOIN (SELECT currency, sum(amount * successes) AS charged FROM observed.intent WHERE successes > 0 AND key_id NOT IN (SELECT id FROM idempotency_keys WHERE expired_at IS NOT NULL) GROUP BY 1) i USING (currency)
 WHERE recorded IS DISTINCT FROM charged`},

		{"a refund made more than once", `
SELECT name
  FROM observed.refund
 GROUP BY name
HAVING count(*) > 1`},

		{"a response 201 without a refund that was made once, for its amount", `
SELECT h.op::text
  FROM observed.http h
  JOIN refunds r USING (account_id, idempotency_key)
  JOIN orders o ON o.account_id = r.account_id AND o.id = r.order_id
  LEFT JOIN observed.refund t ON t.name = r.id::text
 WHERE h.status = 201
   AND (r.provider_refund_id = t.id
        AND r.amount = t.amount
        AND r.currency = t.currency
        AND r.status = t.status
        AND o.payment_intent_id = t.intent_id
        AND h.body::json->>'id' = r.id::text
        AND h.body::json->>'provider_refund_id' = t.id) IS NOT TRUE`},

		{"a refund at the provider without a refund of ours and a response 201", `
SELECT t.id
  FROM observed.refund t
  LEFT JOIN refunds r ON r.provider_refund_id = t.id
  LEFT JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE CASE
           WHEN r.source = 'provider' THEN t.name = ''
           WHEN r.idempotency_key IS NULL THEN t.name = r.id::text -- recorded by reconcile, so that its key has expired (R27)
           ELSE k.response_code = 201
       END IS NOT TRUE`},

		{"an order whose status or refunded amount does not match its refunds at the provider", `
SELECT o.id::text
  FROM orders o
  LEFT JOIN observed.refund t ON t.intent_id = o.payment_intent_id AND t.status NOT IN ('failed', 'canceled')
 GROUP BY o.account_id, o.id
HAVING o.amount_refunded <> coalesce(sum(t.amount), 0)
    OR (o.status = 'partially_refunded') <> (o.amount_refunded BETWEEN 1 AND o.amount - 1)`},

		{"a paid order without exactly one receipt job, or an unpaid order with one (R15)", `
SELECT o.id || ' ' || o.status || ' ' || count(j.id)
  FROM orders o
  LEFT JOIN staged_jobs j ON j.kind = 'receipt' AND j.args->>'order_id' = o.id::text
 GROUP BY o.account_id, o.id
HAVING count(j.id) <> (o.paid_at IS NOT NULL)::int`},

		{"a failure response whose payment can still succeed (R23)", `
SELECT k.id || ' ' || i.status
  FROM idempotency_keys k
  JOIN orders o ON o.account_id = k.account_id AND o.idempotency_key = k.idempotency_key
  JOIN observed.intent i ON i.id = o.payment_intent_id
 WHERE k.response_code <> 201
   AND i.status NOT IN ('canceled', 'requires_payment_method')`},

		{"a cancel whose response does not match the payment, or an intent that can still be charged after a 200 (R29)", `
SELECT k.response_code || ' ' || o.status || ' ' || i.status
  FROM idempotency_keys k
  JOIN orders o ON o.account_id = k.account_id AND o.id::text = split_part(k.request_path, '/', 4)
  LEFT JOIN observed.intent i ON i.order_id = o.id::text
 WHERE k.operation = 'cancel_order'
   AND CASE k.response_code
           WHEN 200 THEN o.status = 'payment_failed' AND i.successes = 0 AND i.status IN ('canceled', 'requires_payment_method')
           ELSE o.paid_at IS NOT NULL AND i.successes = 1
       END IS NOT TRUE`},

		{"a confirm of an order after the request of its cancel (R29)", `
SELECT c.path
  FROM audit_records a
  JOIN observed.call c ON c.order_id = a.resource_id
 WHERE a.action = 'order.cancel_requested'
   AND c.path LIKE '%/confirm'
   AND c.at > a.created_at`},

		{"a failure response before the provider returned a final outcome (R11)", `
SELECT l.id::text
  FROM observed.key_log l
  JOIN idempotency_keys k ON k.id = l.id
  JOIN orders o ON o.account_id = k.account_id AND o.idempotency_key = k.idempotency_key
 WHERE l.old_point <> 'finished'
   AND l.new_point = 'finished'
   AND l.new_code <> 201
   AND NOT EXISTS (
           SELECT
             FROM observed.call c
            WHERE c.order_id = o.id::text
              AND c.path <> '/v1/payment_intents'
              AND c.delivered
              AND c.status IN (200, 400, 402)
              AND c.at <= l.at
       )
   AND NOT EXISTS ( -- a search, which may find no intent
           SELECT
             FROM observed.call c
            WHERE c.method = 'GET'
              AND c.path IN ('/v1/payment_intents', '/v1/payment_intents/search')
              AND c.delivered
              AND c.status = 200
              AND c.at <= l.at
       )`},

		{"a confirm of an intent whose id was not committed", `
SELECT c.path
  FROM observed.call c
 WHERE c.path LIKE '%/confirm'
   AND NOT EXISTS (
           SELECT
             FROM observed.intent_log l
            WHERE c.path = '/v1/payment_intents/' || l.intent_id || '/confirm'
              AND l.at <= c.at
       )`},

		{"a confirm of an order that is older than the charge window (R24)", `
SELECT c.path
  FROM observed.call c
  JOIN orders o ON o.id::text = c.order_id
 WHERE c.path LIKE '%/confirm'
   AND o.created_at + observed.aged_since(c.at) < c.at - interval '24 hours'`},

		{"a client secret in a response after the charge window (R24)", `
SELECT h.op::text
  FROM observed.http h
  JOIN orders o USING (account_id, idempotency_key)
 WHERE strpos(h.body, '_secret_') > 0
   AND o.created_at + observed.aged_since(h.sent_at) < h.sent_at - interval '24 hours'`},

		{providerKeyReused, `
SELECT provider_key
  FROM observed.call
 WHERE provider_key IS NOT NULL
   AND path NOT IN (SELECT '/v1/payment_intents/' || id || '/confirm' FROM observed.reconciled)
 GROUP BY provider_key
HAVING count(DISTINCT order_id) > 1 OR count(DISTINCT (method, path, body)) > 1`},

		{moreIntents, `
SELECT order_id
  FROM observed.intent
 WHERE id NOT IN (SELECT id FROM observed.reconciled)
 GROUP BY order_id
HAVING count(*) > 1`},

		{"a transaction open during a provider call (R6)", `
SELECT concat_ws(' ', at, pid)
  FROM observed.open_transaction`},

		{"different final responses of one key (R14)", `
SELECT idempotency_key
  FROM observed.http
 WHERE final
 GROUP BY account_id, idempotency_key
HAVING count(DISTINCT (status, body, content_type, location)) > 1`},

		{"a response that is not final, after the final one", `
SELECT later.op || ': ' || later.status
  FROM observed.http first
  JOIN observed.http later USING (account_id, idempotency_key, params)
 WHERE first.final
   AND later.sent_at > first.received_at
   AND NOT later.final`},

		{"a final response that differs from the stored one (R14)", `
SELECT h.op::text
  FROM observed.http h
  JOIN idempotency_keys k USING (account_id, idempotency_key)
 WHERE h.final
   AND (h.status, convert_to(h.body, 'UTF8')) IS DISTINCT FROM (k.response_code, k.response_body)`},

		{"a failed order without the reason of its response", `
SELECT k.id::text
  FROM idempotency_keys k
  JOIN orders o ON o.account_id = k.account_id AND o.idempotency_key = k.idempotency_key,
       convert_from(k.response_body, 'UTF8') AS body
 WHERE k.response_code <> 201
   AND (o.failure_code, o.decline_code) IS DISTINCT FROM (body::json->>'code', body::json->>'decline_code')`},

		{"an unfinished key", `
SELECT id::text
  FROM idempotency_keys
 WHERE recovery_point <> 'finished'`},

		{"a takeover that moved the recovery point, of a finished key, or before the lease ended (R7, R8)", `
SELECT concat_ws(' ', at, id, old_point, new_point)
  FROM observed.key_log
 WHERE old_token <> new_token
   AND (old_point <> new_point OR old_point = 'finished' OR old_locked_at BETWEEN at - interval '2 min' AND at + interval '2 min')`},

		{"a recovery point that did not follow the steps, or a deleted key", `
SELECT concat_ws(' ', at, id, old_point, new_point)
  FROM observed.key_log
 WHERE op = 'DELETE'
    OR old_point <> new_point
       AND (old_point, new_point) NOT IN (
               ('started', 'order_created'),
               ('order_created', 'charge_created'),
               ('order_created', 'finished'),
               ('charge_created', 'finished'),
               ('started', 'refund_created'),
               ('refund_created', 'finished'),
               ('started', 'cancel_requested'),
               ('cancel_requested', 'finished')
           )`},

		{"a stored response that changed (R14)", `
SELECT concat_ws(' ', at, id)
  FROM observed.key_log
 WHERE old_point = 'finished'
   AND (new_point <> 'finished' OR old_response <> new_response)`},

		{"audit records that do not match the order", `
SELECT o.id || ' ' || o.status
  FROM orders o
  LEFT JOIN audit_records a ON a.resource_type = 'order' AND a.resource_id = o.id::text
 GROUP BY o.account_id, o.id
HAVING count(*) FILTER (WHERE a.action = 'order.created') <> 1
    OR count(*) FILTER (WHERE a.action = 'order.paid') <> (o.paid_at IS NOT NULL)::int
    OR count(*) FILTER (WHERE a.action = 'order.payment_failed') <> (o.status = 'payment_failed')::int
    OR count(*) FILTER (WHERE a.action = 'order.requires_action') > 1`},

		{"a client secret in a response before the order's status was recorded (R23)", `
SELECT h.op::text
  FROM observed.http h
 WHERE strpos(h.body, '_secret_') > 0
   AND NOT EXISTS (
           SELECT
             FROM orders o
             JOIN audit_records a ON a.account_id = o.account_id AND a.resource_id = o.id::text
            WHERE o.account_id = h.account_id
              AND o.idempotency_key = h.idempotency_key
              AND a.action = 'order.requires_action'
              AND a.created_at <= h.received_at
       )`},

		{"a client secret in a response that requires no action, or in a row", `
SELECT concat_ws(' ', h.op, h.status)
  FROM observed.http h
 WHERE h.status <> 202
   AND strpos(h.body, '"state":"requires_action"') = 0 -- the status of the key
   AND strpos(h.body, '_secret_') > 0
 UNION ALL
SELECT 'key ' || k.id
  FROM idempotency_keys k
 WHERE strpos(concat(k, convert_from(k.response_body, 'UTF8')), '_secret_') > 0
 UNION ALL
SELECT 'order ' || o.id
  FROM orders o
 WHERE strpos(o::text, '_secret_') > 0
 UNION ALL
SELECT 'audit record ' || a.id
  FROM audit_records a
 WHERE strpos(a::text, '_secret_') > 0`},

		{"audit records that do not match the refund", `
SELECT r.id || ' ' || r.status
  FROM refunds r
  LEFT JOIN audit_records a ON a.resource_type = 'refund' AND a.resource_id = r.id::text
 GROUP BY r.account_id, r.id
HAVING count(*) FILTER (WHERE a.action = 'refund.created') <> (r.idempotency_key IS NOT NULL)::int
    OR count(*) FILTER (WHERE a.action = 'refund.succeeded') <> (r.status IN ('succeeded', 'failed') AND r.provider_refund_id IS NOT NULL)::int
    OR count(*) FILTER (WHERE a.action = 'refund.failed') <> (r.status = 'failed')::int`},

		{"data of another account in a response (R20)", `
SELECT h.op::text
  FROM observed.http h
  JOIN observed.account a ON a.id <> h.account_id AND strpos(h.body, a.email) > 0`},

		{"an order with the e-mail address of another account (R20)", `
SELECT o.id::text
  FROM orders o
  JOIN observed.account a ON a.id = o.account_id
 WHERE o.email <> a.email`},
	}
}

// observedSchema is for what clients received, what the provider did, and every change
// of a key and of an order's intent. The invariants join it with the program's tables.
const observedSchema = `
CREATE SCHEMA observed;

CREATE TABLE observed.http (
    op              serial,
    account_id      uuid,
    idempotency_key text, -- NULL for reads
    params          text,
    sent_at         timestamptz,
    received_at     timestamptz,
    status          integer, -- 0: no response arrived
    body            text,
    content_type    text,
    location        text,
    final           boolean
);
CREATE TABLE observed.intent (
    id        text,
    order_id  text,
    key_id    uuid, -- ours, from the metadata
    amount    bigint,
    currency  text,
    status    text,
    successes integer
);
CREATE TABLE observed.refund (
    id        text,
    name      text, -- our id, from the metadata
    intent_id text,
    amount    bigint,
    currency  text,
    status    text
);
CREATE TABLE observed.call (
    at           timestamptz,
    method       text,
    path         text,
    provider_key text,
    body         bytea,
    order_id     text,
    status       integer,
    delivered    boolean -- the response reached the program
);
CREATE VIEW observed.reconciled AS -- intents of lost orders, which reconcile has cancelled
SELECT id
  FROM observed.intent i
 WHERE EXISTS (
           SELECT
             FROM observed.call c
            WHERE c.path = '/v1/payment_intents/' || i.id || '/cancel'
              AND c.provider_key LIKE 'orders-api-reconcile-%'
       );
CREATE TABLE observed.open_transaction (at timestamptz, pid integer); -- during a provider call
CREATE TABLE observed.account (id uuid, email text);
CREATE TABLE observed.aged (at timestamptz, age interval); -- when the harness made the rows older
CREATE FUNCTION observed.aged_since(since timestamptz) RETURNS interval LANGUAGE sql AS $$
    SELECT coalesce(sum(age), '0') FROM observed.aged WHERE at > since
$$;

CREATE TABLE observed.key_log (
    at            timestamptz DEFAULT clock_timestamp(),
    op            text,
    account_id    uuid,
    id            uuid,
    old_point     text,
    new_point     text,
    old_token     uuid,
    new_token     uuid,
    old_locked_at timestamptz,
    old_response  text,
    new_response  text,
    new_code      integer
);
CREATE FUNCTION observed.log_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observed.key_log (op, account_id, id, old_point, new_point, old_token, new_token, old_locked_at, old_response, new_response, new_code)
    VALUES (TG_OP, OLD.account_id, OLD.id, OLD.recovery_point, NEW.recovery_point, OLD.lease_token, NEW.lease_token, OLD.locked_at,
            concat(OLD.response_code, OLD.response_headers, OLD.response_body),
            concat(NEW.response_code, NEW.response_headers, NEW.response_body), NEW.response_code);
    RETURN NULL;
END $$;
CREATE TRIGGER log_key AFTER UPDATE OR DELETE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION observed.log_key();

CREATE TABLE observed.intent_log (
    at        timestamptz DEFAULT clock_timestamp(),
    order_id  uuid,
    intent_id text
);
CREATE FUNCTION observed.log_intent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observed.intent_log (order_id, intent_id) VALUES (NEW.id, NEW.payment_intent_id);
    RETURN NULL;
END $$;
CREATE TRIGGER log_intent AFTER INSERT OR UPDATE OF payment_intent_id ON orders FOR EACH ROW EXECUTE FUNCTION observed.log_intent()`

func (h *harness) storeObservations() {
	h.t.Helper()
	batch := &pgx.Batch{}
	batch.Queue("TRUNCATE observed.http, observed.intent, observed.refund, observed.call, observed.account")
	for _, a := range []account{h.account, h.otherAccount} {
		batch.Queue("INSERT INTO observed.account VALUES ($1, $2)", a.id, a.email)
	}
	for _, r := range h.responses {
		batch.Queue(`
INSERT INTO observed.http (account_id, idempotency_key, params, sent_at, received_at, status, body, content_type, location, final)
VALUES ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10)`,
			r.account.id, r.key, r.params, r.sentAt, r.receivedAt, r.status, r.body, r.contentType, r.location, r.isFinal())
	}
	successes := map[string]int{}
	for _, charge := range h.stripe.Charges() {
		successes[charge.IntentID]++
	}
	for _, i := range h.intents() {
		batch.Queue("INSERT INTO observed.intent VALUES ($1, $2, nullif($3, '')::uuid, $4, $5, $6, $7)",
			i.ID, i.Metadata["order_id"], i.Metadata["idempotency_key_id"], i.Amount, i.Currency, i.Status, successes[i.ID])
	}
	for _, r := range h.stripe.Refunds() {
		batch.Queue("INSERT INTO observed.refund VALUES ($1, $2, $3, $4, $5, $6)", r.ID, r.Name, r.IntentID, r.Amount, r.Currency, r.Status)
	}
	for _, r := range h.stripe.Requests() {
		for _, proxy := range h.proxies {
			if c, found := proxy.call(r.ID); found {
				batch.Queue("INSERT INTO observed.call VALUES ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8)",
					c.at, r.Method, r.Path, r.Key, r.Body, r.OrderID, r.Status, c.delivered)
			}
		}
	}
	require.NoError(h.t, h.pool.SendBatch(h.t.Context(), batch).Close())
}

func (h *harness) violations() []string {
	h.t.Helper()
	h.storeObservations()
	var found []string
	for _, i := range invariants() {
		if rows := h.query(i.query); rows != nil {
			found = append(found, i.name+": "+strings.Join(rows, ", "))
		}
	}
	return found
}
