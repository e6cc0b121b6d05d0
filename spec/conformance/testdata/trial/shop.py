"""A shop in another language than the command: orders in SQLite, which several processes share.

"shop.py PORT" serves, and "shop.py expire KEY" ends the retention of a key. The files are in the
working directory. The table charges stands for a payment provider: it is committed by itself,
before the order, and charges once for each of its own keys. DEFECT adds one fault.
"""
import contextlib, json, os, sqlite3, sys, threading, time, unicodedata, urllib.parse, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEFECT = os.environ.get("DEFECT", "")
LEASE = 1.0  # seconds until another process may take a key over
ACCOUNTS = {"Bearer one": "one", "Bearer two": "two"}
answers = threading.local()
if DEFECT == "responses-mixed-up":  # the threads share a variable
    answers = type("Shared", (), {})

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS keys (account, key, request, charge, run, until, status, body, PRIMARY KEY (account, key));
CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, account, body);
CREATE TABLE IF NOT EXISTS charges (key PRIMARY KEY, order_id);
"""


def connect():
    return sqlite3.connect("shop.db", timeout=60, isolation_level=None)


@contextlib.contextmanager
def transaction():
    db = connect()
    try:
        db.execute("BEGIN IMMEDIATE")
        yield db
        db.execute("COMMIT")
    finally:
        db.close()  # rolls back after an error


def error(status, text):
    return status, json.dumps({"error": text})


def create(account, key, request):
    run = f"{os.getpid()} {uuid.uuid4()}"
    with transaction() as db:
        row = db.execute("SELECT request, charge, run, until, status, body FROM keys WHERE account = ? AND key = ?", (account, key)).fetchone()
        charge = str(uuid.uuid4())
        if row is None:
            db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", (account, key, request, charge, run, time.time() + LEASE))
        else:
            known, first, holder, until, status, body = row
            if status == 410:
                return error(422, "the key has expired; it created " + body)
            if known != request:
                return error(422, "the key was used for another request")
            if status:
                return status, body
            busy = until > time.time() or DEFECT == "lock-without-end"
            if DEFECT == "lock-in-the-process" and not holder.startswith(f"{os.getpid()} "):
                busy = False
            if busy:
                return error(409, "in progress")
            db.execute("UPDATE keys SET run = ?, until = ? WHERE account = ? AND key = ?", (run, time.time() + LEASE, account, key))
            if DEFECT not in ("lock-in-the-process", "charge-of-the-run"):
                charge = first
    status, body = pay(charge, json.loads(request))
    with transaction() as db:
        mine = (account, key, run)
        if status == 503:
            db.execute("UPDATE keys SET until = 0 WHERE account = ? AND key = ? AND run = ?", mine)
            return status, body
        if status == 402 and DEFECT == "decline-not-stored":
            db.execute("DELETE FROM keys WHERE account = ? AND key = ? AND run = ?", mine)
            return status, body
        if not db.execute("UPDATE keys SET status = ?, body = ? WHERE account = ? AND key = ? AND run = ?", (status, body, *mine)).rowcount:
            return error(409, "another run has taken the key over")
        if status == 201:
            db.execute("INSERT INTO orders VALUES (?, ?, ?)", ("ord_" + charge, account, body))
        if DEFECT == "last-response-only":
            db.execute("DELETE FROM keys WHERE account = ? AND key <> ? AND status IS NOT NULL", (account, key))
    return status, body


def pay(charge, request):
    """Calls the provider, which may lose its response after the charge."""
    lasts = 0.2 if request["sku"] == "slow" else 0.002
    time.sleep(lasts)
    if request["sku"] == "declined":
        return error(402, "declined")
    with transaction() as db:
        db.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", (charge, "ord_" + charge))
    time.sleep(lasts)
    if os.path.exists("interrupted"):
        return error(503, "the provider did not respond")
    return 201, json.dumps({"id": "ord_" + charge, "charge": charge, **request})


class Shop(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        db = connect()
        if self.path == "/charges":
            items = [{"id": key, "order": order} for key, order in db.execute("SELECT key, order_id FROM charges")]
        else:
            account = ACCOUNTS.get(self.headers["Authorization"])
            items = [{"id": id} for id, in db.execute("SELECT id FROM orders WHERE account = ?", (account,))]
        db.close()
        self.answer(200, json.dumps({"data": items}))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        answers.last = self.order(body)
        if DEFECT == "responses-mixed-up":
            time.sleep(0.05)
        self.answer(*answers.last)

    def order(self, body):
        path, _, query = self.path.partition("?")
        account = ACCOUNTS.get(self.headers["Authorization"])
        if account is None:
            return error(401, "unauthorized")
        if path != "/orders":
            return error(404, "not found")
        keys = self.headers.get_all("Idempotency-Key", [])
        key = keys[0] if len(keys) == 1 else ""
        if DEFECT == "key-normalised" and key:
            key = " ".join(unicodedata.normalize("NFC", key.encode("latin-1").decode("utf-8", "replace")).casefold().split())
        elif not 16 <= len(key) <= 255 or not all("!" <= c <= "~" for c in key):
            return error(400, "one key of 16 to 255 visible characters is required")
        if DEFECT == "key-of-64-characters":
            key = key[:64]
        if query not in ("", "currency=eur"):
            return error(400, "unknown parameter")
        try:
            sent = json.loads(body)
            if DEFECT != "types-ignored" and (type(sent["sku"]) is not str or type(sent["quantity"]) not in (int, float) or sent["quantity"] % 1):
                return error(400, "sku is a text and quantity an integer")
            request = {"sku": str(sent["sku"]), "quantity": int(sent["quantity"])}
        except (ValueError, KeyError, TypeError):
            return error(400, "an order has sku and quantity")
        if request["quantity"] < 1:
            return error(400, "quantity must be positive")
        if DEFECT != "query-ignored":
            request["currency"] = "eur" if query else "usd"
        return create(account, key, json.dumps(request))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # the client has gone


if __name__ == "__main__":
    if sys.argv[1] == "expire":
        with transaction() as db:
            db.execute("UPDATE keys SET status = 410, body = json_extract(body, '$.id') WHERE key = ?", (sys.argv[2],))
        sys.exit()
    with contextlib.closing(connect()) as db:
        db.executescript(SCHEMA)
        if DEFECT == "keys-lost-at-start":
            db.execute("DELETE FROM keys")
    Server(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
