"""A Django application with the middleware of django-idempotency-key."""

import os
import sys

sys.path[:0] = ["source/django-idempotency-key", "../fixtures/python"]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path

from fixture import account, answer


def authenticate(get_response):
    def middleware(request):
        request.account = account(request.META.get("HTTP_AUTHORIZATION"))
        if request.account is None:
            return HttpResponse(status=401)
        return get_response(request)

    return middleware


def charges(request):
    status, body, location = answer(request.account, request.body)
    response = JsonResponse(body, status=status)
    if location:
        response["Location"] = location
    return response


def refunds(request):
    return JsonResponse({"error": "no such charge"}, status=404)


urlpatterns = [path("charges", charges), path("refunds", refunds)]
application = get_wsgi_application()
