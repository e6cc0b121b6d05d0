UPDATE idempotency_keys
   SET recovery_point = $5,
       locked_at      = CASE WHEN $5 <> 'finished' THEN now() END,
       response_code  = $6,
       response_body  = $7
 WHERE idempotency_key = $1
   AND lease_token = $2      -- this run still holds the key
   AND recovery_point = $3   -- which is where this run left it
   AND locked_at <= $4       -- and nothing has renewed its lease since
RETURNING locked_at;
