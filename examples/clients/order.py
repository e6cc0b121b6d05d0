#!/usr/bin/env python3
"""Sends the JSON in FILE exactly once: order.py PATH FILE. FILE.key stores the key.

    ./order.py /v1/orders order-77.json
    ./order.py /v1/orders/ORDER_ID/cancel cancel-9.json

After a crash, or to correct FILE, run it again: the key stays.
"""
import http.client
import json
import os
import random
import signal
import sys
import time
import urllib.parse
import uuid


def stored_key(file):
    """Returns the key of FILE, and creates it at the first call. It is on disk before anything is sent."""
    if not os.path.exists(file):
        new = f"{file}.{os.getpid()}"
        with open(new, "w") as f:
            f.write(str(uuid.uuid4()))
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(new, file)  # unlike a rename, does not replace the key of another run
        except FileExistsError:
            pass
        os.unlink(new)
    # Always sync, because the run that created the key may have stopped before its sync.
    folder = os.open(os.path.dirname(os.path.abspath(file)), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    with open(file) as f:
        return f.read()


def attempt(path, body, key):
    """Returns status, media type, JSON object and Retry-After. http.client follows no redirect."""
    url = urllib.parse.urlsplit(os.environ["ORDERS_URL"])
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.netloc)
    signal.alarm(90)  # a timeout of http.client would begin again with each byte
    try:
        connection.request("POST", path, body, {
            "Authorization": "Bearer " + os.environ["ORDERS_API_KEY"],
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        })
        response = connection.getresponse()
        text = response.read(1000000)
        if response.length or len(text) == 1000000:
            raise ValueError("cut, or too long")
        value = json.loads(text)
        after = response.headers.get("Retry-After", "")
        return (response.status, response.headers.get_content_type(),
                value if isinstance(value, dict) else None, int(after) if after.isdecimal() else 0)
    except (OSError, http.client.HTTPException, ValueError):
        return 0, "", None, 0  # no response, or an incomplete one
    finally:
        signal.alarm(0)
        connection.close()


def late(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, late)
path, file = sys.argv[1:]
success = 200 if path.endswith("/cancel") else 201  # a cancel creates nothing
key = stored_key(file + ".key")
with open(file, "rb") as f:
    body = f.read()
limit = 0.5
while True:
    status, media_type, value, after = attempt(path, body, key)
    if value is not None and media_type == "application/json":
        if status == success:
            print(json.dumps(value))
            sys.exit(0)
        if status == 202 and value.get("action"):
            print(f"The customer must approve {value['action']['payment_intent_id']}. Then run this again.", file=sys.stderr)
            sys.exit(3)
    if value is not None and media_type == "application/problem+json":
        if value.get("retry") == "new-key":
            print(json.dumps(value))
            sys.exit("Final: the key is used. Another card needs another FILE.")
        if value.get("retry") in ("corrected", "never"):
            print(json.dumps(value))
            sys.exit("Rejected. An earlier attempt may have succeeded: keep the key.")
    # After any other response, send the same request again, after Retry-After and a random time.
    time.sleep(after + random.uniform(0, limit))
    limit = min(limit * 2, 30)
