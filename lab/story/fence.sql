UPDATE idempotency_keys
   SET recovery_point = $4,
       locked_at      = CASE WHEN $4 <> 'finished' THEN now() END,
       response_code  = $5,
       response_body  = $6
 WHERE idempotency_key = $1
   AND lease_token = $2         -- this run still holds the key
   AND recovery_point = $3      -- which is where this run left it
   AND locked_at IS NOT NULL    -- and which this run has not released
RETURNING locked_at;
