"""A Django application with the middleware of django-idempotency-key."""

import json
import os
import sys
import urllib.error
import urllib.request

sys.path.insert(0, "source/django-idempotency-key")

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path

ACCOUNTS = {"Bearer one": "1", "Bearer uno": "1", "Bearer two": "2"}


def configure():
    """Set Django's settings, with those that the README of django-idempotency-key shows."""
    # With the default, 409, a repeated request does not get the status of the first response.
    idempotency = {"CONFLICT_STATUS_CODE": None}
    caches = {}
    if os.environ["STORE"] == "redis":
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"] + "/0"}
        if os.environ["LIFETIME"]:
            cache["TIMEOUT"] = int(os.environ["LIFETIME"])
        caches = {"CACHES": {"default": cache}}
        idempotency["STORAGE"] = {"CLASS": "idempotency_key.storage.CacheKeyStorage", "CACHE_NAME": "default"}
        idempotency["LOCK"] = {
            "CLASS": "idempotency_key.locks.redis.MultiProcessRedisLock",
            "LOCATION": os.environ["REDIS_URL"] + "/1",
            "TTL": None,
        }
    settings.configure(
        SECRET_KEY=os.urandom(16).hex(),
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[__name__ + ".authenticate", "idempotency_key.middleware.IdempotencyKeyMiddleware"],
        IDEMPOTENCY_KEY=idempotency,
        **caches,
    )


def authenticate(get_response):
    def middleware(request):
        request.account = ACCOUNTS.get(request.META.get("HTTP_AUTHORIZATION"))
        if request.account is None:
            return HttpResponse(status=401)
        return get_response(request)

    return middleware


def charges(request):
    """Charge through the provider, which supplies the delay, the decline and the outage."""
    try:
        body = json.loads(request.body)
    except ValueError:
        return JsonResponse({"error": "the body is not JSON"}, status=400)
    if not body.get("amount", 0) >= 1:
        return JsonResponse({"error": "amount must be positive"}, status=422)
    charge = urllib.request.Request(
        os.environ["PROVIDER"] + "/charges",
        data=json.dumps({**body, "account": request.account}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(charge) as answer:
            response = JsonResponse(json.load(answer), status=answer.status)
    except urllib.error.HTTPError as error:
        return JsonResponse(json.load(error), status=error.code)
    if response.status_code == 201:
        response["Location"] = "/charges/" + json.loads(response.content)["id"]
    return response


def refunds(request):
    return JsonResponse({"error": "no such charge"}, status=404)


urlpatterns = [path("charges", charges), path("refunds", refunds)]
configure()
application = get_wsgi_application()
