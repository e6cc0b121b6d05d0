package crash_test

// invariant is what must hold after every case: its query returns no row, and
// otherwise one text per violation.
type invariant struct{ name, query string }

func invariants() []invariant {
	return []invariant{
		{"money moved more than once for one order", `
SELECT order_id
  FROM truth.intent
 GROUP BY order_id
HAVING sum(successes) > 1`},

		{"an answer 201 without its order paid, charged once for the amount", `
SELECT h.op::text
  FROM truth.http h
  LEFT JOIN orders o USING (account_id, idempotency_key)
  LEFT JOIN truth.intent i ON i.id = o.payment_intent_id
 WHERE h.status = 201
   AND NOT EXISTS (SELECT FROM refunds r WHERE r.account_id = h.account_id AND r.idempotency_key = h.idempotency_key)
   AND (o.paid_at IS NOT NULL
        AND i.status = 'succeeded'
        AND i.successes = 1
        AND i.amount = o.amount
        AND i.currency = o.currency
        AND h.body::json->>'id' = o.id::text
        AND (h.body::json->>'amount')::bigint = o.amount) IS NOT TRUE`},

		{"money that moved without a paid order and an answer 201", `
SELECT i.id
  FROM truth.intent i
  LEFT JOIN orders o ON o.payment_intent_id = i.id
  LEFT JOIN idempotency_keys k ON k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key
 WHERE i.successes > 0
   AND (o.paid_at IS NULL OR k.response_code IS DISTINCT FROM 201)`},

		{"books and provider differ", `
SELECT concat_ws(' ', booked, taken)
  FROM (SELECT currency, sum(amount) AS booked FROM orders WHERE paid_at IS NOT NULL GROUP BY 1) b
  FULL JOIN (SELECT currency, sum(amount * successes) AS taken FROM truth.intent WHERE successes > 0 GROUP BY 1) t USING (currency)
 WHERE booked IS DISTINCT FROM taken`},

		{"money that went back more than once for one refund", `
SELECT name
  FROM truth.refund
 GROUP BY name
HAVING count(*) > 1`},

		{"an answer 201 without its refund, made once for the amount", `
SELECT h.op::text
  FROM truth.http h
  JOIN refunds r USING (account_id, idempotency_key)
  JOIN orders o ON o.account_id = r.account_id AND o.id = r.order_id
  LEFT JOIN truth.refund t ON t.name = r.id::text
 WHERE h.status = 201
   AND (r.provider_refund_id = t.id
        AND r.amount = t.amount
        AND r.currency = t.currency
        AND r.status = t.status
        AND o.payment_intent_id = t.intent_id
        AND h.body::json->>'id' = r.id::text
        AND h.body::json->>'refund_id' = t.id) IS NOT TRUE`},

		{"money that went back without a refund and an answer 201", `
SELECT t.id
  FROM truth.refund t
  LEFT JOIN refunds r ON r.provider_refund_id = t.id
  LEFT JOIN idempotency_keys k ON k.account_id = r.account_id AND k.idempotency_key = r.idempotency_key
 WHERE k.response_code IS DISTINCT FROM 201`},

		{"an order that does not count what went back", `
SELECT o.id::text
  FROM orders o
  LEFT JOIN truth.refund t ON t.intent_id = o.payment_intent_id AND t.status NOT IN ('failed', 'canceled')
 GROUP BY o.account_id, o.id
HAVING o.amount_refunded <> coalesce(sum(t.amount), 0)
    OR (o.status = 'partially_refunded') <> (o.amount_refunded BETWEEN 1 AND o.amount - 1)`},

		{"a receipt too many, or none, for a paid order, or one for another", `
SELECT o.id || ' ' || o.status || ' ' || count(j.id)
  FROM orders o
  LEFT JOIN staged_jobs j ON j.kind = 'receipt' AND j.args->>'order_id' = o.id::text
 GROUP BY o.account_id, o.id
HAVING count(j.id) <> (o.paid_at IS NOT NULL)::int`},

		{"a failed answer whose payment can still succeed (R23)", `
SELECT k.id || ' ' || i.status
  FROM idempotency_keys k
  JOIN orders o ON o.account_id = k.account_id AND o.idempotency_key = k.idempotency_key
  JOIN truth.intent i ON i.id = o.payment_intent_id
 WHERE k.response_code <> 201
   AND i.status NOT IN ('canceled', 'requires_payment_method')`},

		{"a failed answer before the provider gave a definite one (R11)", `
SELECT l.id::text
  FROM truth.key_log l
  JOIN idempotency_keys k ON k.id = l.id
  JOIN orders o ON o.account_id = k.account_id AND o.idempotency_key = k.idempotency_key
 WHERE l.old_point <> 'finished'
   AND l.new_point = 'finished'
   AND l.new_code <> 201
   AND NOT EXISTS (
           SELECT
             FROM truth.call c
            WHERE c.order_id = o.id::text
              AND c.path <> '/v1/payment_intents'
              AND c.heard
              AND c.status IN (200, 400, 402)
              AND c.at <= l.at
       )`},

		{"a confirm of a payment whose id was not committed (R12)", `
SELECT c.path
  FROM truth.call c
 WHERE c.path LIKE '%/confirm'
   AND NOT EXISTS (
           SELECT
             FROM truth.intent_log l
            WHERE c.path = '/v1/payment_intents/' || l.intent_id || '/confirm'
              AND l.at <= c.at
       )`},

		{"a provider key for two orders or two requests (R5)", `
SELECT provider_key
  FROM truth.call
 WHERE provider_key IS NOT NULL
 GROUP BY provider_key
HAVING count(DISTINCT order_id) > 1 OR count(DISTINCT (method, path, body)) > 1`},

		{"more payments than one made for an order", `
SELECT order_id
  FROM truth.intent
 GROUP BY order_id
HAVING count(*) > 1`},

		{"a transaction held while the provider was called (R6)", `
SELECT concat_ws(' ', at, pid)
  FROM truth.held`},

		{"final answers of one key that differ (R14)", `
SELECT idempotency_key
  FROM truth.http
 WHERE final
 GROUP BY account_id, idempotency_key
HAVING count(DISTINCT (status, body, kind, location)) > 1`},

		{"another answer after the final one", `
SELECT later.op || ': ' || later.status
  FROM truth.http first
  JOIN truth.http later USING (account_id, idempotency_key, params)
 WHERE first.final
   AND later.asked > first.told
   AND NOT later.final`},

		{"an answer that differs from the stored one", `
SELECT h.op::text
  FROM truth.http h
  JOIN idempotency_keys k USING (account_id, idempotency_key)
 WHERE h.final
   AND (h.status, convert_to(h.body, 'UTF8')) IS DISTINCT FROM (k.response_code, k.response_body)`},

		{"a key without its answer", `
SELECT id::text
  FROM idempotency_keys
 WHERE recovery_point <> 'finished'`},

		{"a run that moved the recovery point of a key it had just taken, or took a living lease (R7, R8)", `
SELECT concat_ws(' ', at, id, old_point, new_point)
  FROM truth.key_log
 WHERE old_token <> new_token
   AND (old_point <> new_point OR old_point = 'finished' OR old_locked_at > at - interval '2 min')`},

		{"a recovery point that went back or astray", `
SELECT concat_ws(' ', at, id, old_point, new_point)
  FROM truth.key_log
 WHERE op = 'DELETE'
    OR old_point <> new_point
       AND (old_point, new_point) NOT IN (
               ('started', 'order_created'),
               ('order_created', 'charge_created'),
               ('order_created', 'finished'),
               ('charge_created', 'finished'),
               ('started', 'refund_created'),
               ('refund_created', 'finished')
           )`},

		{"a stored answer that changed (R14)", `
SELECT concat_ws(' ', at, id)
  FROM truth.key_log
 WHERE old_point = 'finished'
   AND (new_point <> 'finished' OR old_answer <> new_answer)`},

		{"audit records that do not tell what happened", `
SELECT o.id || ' ' || o.status
  FROM orders o
  LEFT JOIN audit_records a ON a.resource_type = 'order' AND a.resource_id = o.id::text
 GROUP BY o.account_id, o.id
HAVING count(*) FILTER (WHERE a.action = 'order.created') <> 1
    OR count(*) FILTER (WHERE a.action = 'order.paid') <> (o.paid_at IS NOT NULL)::int
    OR count(*) FILTER (WHERE a.action = 'order.payment_failed') <> (o.status = 'payment_failed')::int`},

		{"audit records that do not tell of a refund", `
SELECT r.id || ' ' || r.status
  FROM refunds r
  LEFT JOIN audit_records a ON a.resource_type = 'refund' AND a.resource_id = r.id::text
 GROUP BY r.account_id, r.id
HAVING count(*) FILTER (WHERE a.action = 'refund.created') <> 1
    OR count(*) FILTER (WHERE a.action = 'refund.succeeded') <> (r.status = 'succeeded')::int`},

		{"something of another account's in an answer (R20)", `
SELECT h.op::text
  FROM truth.http h
  JOIN truth.account a ON a.id <> h.account_id AND strpos(h.body, a.email) > 0`},

		{"two accounts in one order's rows", `
SELECT o.id::text
  FROM orders o
  JOIN truth.account a ON a.id = o.account_id
 WHERE o.email <> a.email`},
	}
}
