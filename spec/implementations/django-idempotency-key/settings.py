"""Settings of Django, with those that the README of django-idempotency-key shows."""

import os

SECRET_KEY = os.urandom(16).hex()
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "server"
MIDDLEWARE = [
    "server.authenticate",
    "idempotency_key.middleware.IdempotencyKeyMiddleware",
]

# With the default, 409, a repeated request does not get the status of the first response.
IDEMPOTENCY_KEY = {"CONFLICT_STATUS_CODE": None}

if os.environ["STORE"] == "redis":
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["REDIS_URL"] + "/0",
    }
    if os.environ["LIFETIME"]:
        cache["TIMEOUT"] = int(os.environ["LIFETIME"])
    CACHES = {"default": cache}
    IDEMPOTENCY_KEY["STORAGE"] = {"CLASS": "idempotency_key.storage.CacheKeyStorage", "CACHE_NAME": "default"}
    IDEMPOTENCY_KEY["LOCK"] = {
        "CLASS": "idempotency_key.locks.redis.MultiProcessRedisLock",
        "LOCATION": os.environ["REDIS_URL"] + "/1",
        "TTL": None,
    }
