/*
 * One idempotency key of POST /v1/orders: its row, the runs that execute it, the provider,
 * the customer, a client that cancels the order, and a standby that may take over without the
 * newest rows. README.md explains the model and names the function of each action.
 *
 * Each atomic block is one action, which prints its name and the state behind it. What must
 * hold is asserted where it could break; the comment of an assertion names the property.
 * Each variant (-DONE_CALL, -DNO_FENCE and so on) breaks one rule.
 */

#ifndef FAULTS
#define FAULTS 3  /* in one history, see fault() */
#endif
#define RUNS    2 /* that are alive at once: the holder of the lease, and a late one */
#define DAYS    5 /* the end of time; creates are sent for one day, the charge window is two */
#define INTENTS 3 /* that the provider can have */

mtype:point  = { unused, order_created, charge_created, finished };
mtype:status = { absent, unconfirmed, action, succeeded, declined, canceled };
mtype:answer = { none, paid, failed };
mtype:step   = { idle,
                 wait_search, wait_create, wait_read, wait_confirm, wait_cancel,
                 commit_intent, commit_action, commit_again, commit_paid, commit_failed };

/* The key's row, with that of its order. */
typedef Row {
	mtype:point  at     = unused;
	mtype:answer answer = none; /* the stored response */
	bool locked;                /* locked_at is not NULL, and LEASE_DURATION has not passed since */
	bool released;              /* locked_at is NULL */
	byte token;                 /* of the run that may write */
	byte created;               /* day */
	byte intent;                /* payment_intent_id; 0 is NULL */
	bool waiting;               /* the order's status is requires_action */
	bool cancel                 /* cancel_requested_at is not NULL */
}

/* A COMMIT that was sent over a broken connection, and may still arrive. */
typedef Commit {
	mtype:step  next = idle;
	mtype:point at   = unused;
	byte token;
	byte intent
}

Row    row;
Row    standby;       /* what a failover restores */
bool   stopped, lost; /* the standby no longer follows; the failover has happened */
bool   overslept;     /* a run has paused, or a call was in flight, until another day */
Commit late;

byte today, faults, tokens;
byte alive;           /* runs */
byte sends[RUNS];     /* the token of a run whose calls its lease still allows, or 0 */

/* The provider. */
mtype:status paymentIntent[INTENTS + 1] = absent;
byte intents, charges;
byte born[INTENTS + 1];             /* day */
byte create_replay;                 /* the intent that the key of the create returns; 0: the key is new or forgotten */
byte create_day;                    /* when that key was used first */
bool create_used;
mtype:status confirm_replay = absent; /* the status that the key of the confirm returns; absent: it is new or forgotten */
byte confirm_intent, confirm_day;   /* for this intent, since this day */
bool late_create;                   /* calls whose run has ended, and which may still arrive */
byte late_confirm, late_cancel;     /* for this intent, or 0 */

/* The client and the customer. */
mtype:answer seen = none;           /* the final response that the client has received */
bool secret[INTENTS + 1];           /* the customer's browser has the intent's client secret */
bool cancelAnswered;                /* a client has the 200 of its cancel */

#ifdef NEW_ROW_SEARCH
bool older[INTENTS + 1];            /* the intent is older than the row, which was lost */
#endif

#define committing          (next == commit_intent || next == commit_action || next == commit_again || \
                             next == commit_paid || next == commit_failed)
#define fault()             (faults < FAULTS)
#define windowOver(created) (today - (created) >= 2)
#define keyWorks(created)   (today - (created) < 1)
#define canCreate           (create_replay != 0 || intents < INTENTS)

/* The fence (R7): token and recovery point of a key that its run has not released. */
#ifdef NO_FENCE
#define fence(_at, _token) (row.at != unused)
#else
#define fence(_at, _token) (row.at == _at && row.token == _token && !row.released)
#endif

/* What an action prints. README.md lists the columns; lab/model reads them. */
#define state printf(" | %e %d %d %d %e | %d %e %e %e\n", \
	row.at, row.locked, row.intent, row.waiting, row.answer, \
	charges, paymentIntent[1], paymentIntent[2], paymentIntent[3])
#define did(name)      printf(name); printf(" %d", me); state
#define happened(name) printf(name); state

inline copyRow(to, from) {
	to.at      = from.at;
	to.answer  = from.answer;
	to.locked  = from.locked;
	to.token   = from.token;
	to.released = from.released;
	to.created = from.created;
	to.intent  = from.intent;
	to.waiting = from.waiting;
	to.cancel  = from.cancel
}

inline forgetLateCommit() {
	late.next = idle; late.at = unused; late.token = 0; late.intent = 0
}

/* ---- what must hold ---- */

inline charge(n) {
	paymentIntent[n] = succeeded;
	charges++;
	assert(charges == 1);    /* at most one charge */
	assert(seen != failed);  /* an order that was reported as failed is never charged */
	assert(!cancelAnswered)  /* an order whose cancel was answered with 200 is never charged */
}

inline respond() {
	assert(seen == none || seen == row.answer);   /* one key, one final response */
	assert(row.answer != paid || charges == 1);   /* no 201 without money */
	assert(row.answer != failed || charges == 0); /* no failure with money */
	seen = row.answer
}

/* ---- the provider ---- */

/* executeCreate sets n to the intent of the call's provider key. */
inline executeCreate(n) {
	if
	:: create_replay != 0 -> n = create_replay
	:: else ->
		intents++;
		n = intents;
		paymentIntent[n] = unconfirmed;
		born[n] = today;
		create_replay = n;
		if
		:: !create_used -> create_used = true; create_day = today
		:: else
		fi;
#ifdef ONE_CALL
		if
		:: charge(n)
		:: paymentIntent[n] = declined
		fi
#endif
	fi
}

/* executeConfirm leaves the status of the response in confirm_replay, or it is an error without an effect. */
#define confirmedAs(n) (confirm_intent == n -> confirm_replay : absent)

inline executeConfirm(n) {
	if
	:: confirm_replay == absent && paymentIntent[n] == unconfirmed ->
		if
		:: charge(n)
		:: paymentIntent[n] = action
		:: paymentIntent[n] = declined
		fi;
		confirm_replay = paymentIntent[n];
		confirm_intent = n;
		confirm_day = today
	:: else
	fi
}

inline executeCancel(n) {
	if
	:: paymentIntent[n] != succeeded -> paymentIntent[n] = canceled
	:: else
	fi
}

/* ---- a run: of a client's request, of its retry, or of the completer ---- */

inline stop() {
	alive--;
	sends[me] = 0;
	next = idle; unknown = false; reads = false; replayed = false; acted = false; closing = false; at = unused; token = 0; created = 0; intent = 0
}

/* release ends a run with 503 or 202. The recovery point stays (R11). */
inline release() {
	if
	:: row.token == token && (row.at == order_created || row.at == charge_created) -> row.locked = false; row.released = true
	:: else
	fi;
	stop()
}

/* write is the transaction of a step, whose fence has held. */
inline write(step, n) {
	assert(row.at != finished); /* a finished key stays finished */
	row.locked = true;
	row.released = false;
	if
	:: step == commit_intent -> row.at = charge_created; row.intent = n
	:: step == commit_action -> row.waiting = true
	:: step == commit_again
	:: step == commit_paid   -> row.at = finished; row.answer = paid; row.locked = false; row.waiting = false
	:: step == commit_failed -> row.at = finished; row.answer = failed; row.locked = false; row.waiting = false
	fi
}

/* mustClose: the run closes the order without a charge, if it is not charged yet. */
#define mustClose (closing || windowOver(created))

/* committed continues the run after a COMMIT that was executed. */
inline committed() {
	unknown = false;
	at = row.at;
	closing = row.cancel;
	sends[me] = token;
	if
	:: row.at == finished ->
		if
		:: respond()
		:: fault() -> faults++ /* the response is lost */
		fi;
		stop()
	:: row.at == charge_created && acted && !mustClose ->
		secret[intent] = true; /* 202 */
		release()
	:: row.at != finished && (over || !row.locked) && !(row.at == charge_created && acted && !mustClose) ->
		release() /* a call ends with its lease */
	:: else ->
		if
		:: row.at == order_created && reads  -> next = wait_search /* a failover has moved the row back */
		:: row.at == order_created && !reads -> next = wait_create
		:: row.at == charge_created && (reads || replayed || mustClose || next != commit_intent) -> next = wait_read
		:: else -> next = wait_confirm
		fi
	fi
}

/* rank is the precedence of several intents. */
#define rank(n) (paymentIntent[n] == succeeded -> 4 : (paymentIntent[n] == action -> 3 : (paymentIntent[n] == unconfirmed -> 1 : 2)))

#define young(n) (born[n] == today && keyWorks(created))

#ifdef NEW_ROW_SEARCH
#define searched(n) (paymentIntent[n] != absent && !older[n])
#else
#define searched(n) (paymentIntent[n] != absent)
#endif

inline consider(n) {
	if
	:: searched(n) && (intent == 0 || rank(n) > rank(intent)) -> intent = n
	:: searched(n) && young(n) -> printf("hidden %d\n", n) /* the provider's search does not find it yet */
	:: else
	fi
}

inline findIntent() {
	intent = 0;
	consider(3);
	consider(2);
	consider(1);
	if
	:: intent != 0 && rank(intent) < 3 && keyWorks(created) -> intent = 0 /* the create returns it */
	:: else
	fi
}

/* awaitAction ends the run with 202, whose client secret the order's status precedes. */
inline awaitAction() {
	if
	:: row.waiting -> secret[intent] = true; release()
	:: else -> acted = true; next = commit_action
	fi
}

/* resolve does what the intent's status requires. */
inline resolve() {
	if
	:: paymentIntent[intent] == succeeded -> next = commit_paid
	:: paymentIntent[intent] == canceled  -> next = commit_failed
#ifdef DECLINE_STORED
	:: paymentIntent[intent] == declined  -> next = commit_failed
#else
	:: paymentIntent[intent] == declined  -> next = wait_cancel /* the customer may pay with another card */
#endif
	:: paymentIntent[intent] == unconfirmed && !mustClose -> next = wait_confirm
	:: paymentIntent[intent] == action && !mustClose      -> awaitAction()
	:: else -> next = wait_cancel
	fi
}

active [RUNS] proctype execution() {
	byte me = _pid;
	mtype:step  next = idle; /* what the run is about to do */
	mtype:point at = unused; /* what it knows of the row */
	byte token, created, intent;
	bool reads;              /* an earlier run may have made calls: read before acting */
	bool replayed;           /* the provider's key returned its stored response, which may be stale */
	bool acted;              /* it has an action for the customer, which it may record */
	bool closing;            /* the order was cancelled, when the run last wrote to it or took it over */
	bool over;               /* its lease is over by its own clock, which it read before the COMMIT */
	bool unknown;            /* a COMMIT was sent, and its acknowledgement is missing */
end:
	do
	/* After lost rows, a client without a final response retries while the provider key works. */
	:: atomic { next == idle && row.at == unused &&
			(!lost || (seen == none && today < DAYS - 2 && (!create_used || today == create_day))) ->
		alive++; tokens++;
		row.at = order_created; row.token = tokens; row.locked = true; row.created = today;
		at = order_created; token = tokens; created = today; sends[me] = token;
		next = wait_create;
		did("claim") }
	/* A key that waits for its customer gets a run only when the customer has acted. */
	:: atomic { next == idle && (row.at == order_created || row.at == charge_created) && !row.locked &&
			!(row.waiting && paymentIntent[row.intent] == action && secret[row.intent] && !windowOver(row.created) && !row.cancel) ->
		alive++; tokens++;
		row.token = tokens; row.locked = true; row.released = false;
		at = row.at; token = tokens; created = row.created; intent = row.intent; sends[me] = token;
		reads = true; closing = row.cancel;
		next = (at == order_created -> wait_search : wait_read);
#ifdef ONE_CALL
		next = wait_create;
#endif
		did("takeover") }
	:: atomic { next == idle && row.at == finished && seen != row.answer ->
		respond();
		did("replay") }

	/* order_created: find or create the intent. */
	:: atomic { next == wait_search ->
		findIntent();
		if
		:: intent != 0 -> next = commit_intent
		:: intent == 0 && !keyWorks(created) -> next = commit_failed
		:: else -> next = wait_create
		fi;
		did("search") }
	:: atomic { next == wait_create && canCreate ->
		replayed = (create_replay != 0);
		executeCreate(intent);
#ifdef ONE_CALL
		next = (paymentIntent[intent] == succeeded -> commit_paid : commit_failed);
#else
		next = commit_intent;
#endif
		did("create") }

	/* charge_created: confirm the intent, or do what its status requires. */
	:: atomic { next == wait_read -> resolve(); did("read") }
	:: atomic { next == wait_confirm ->
		assert(!windowOver(created)); /* no confirm after the window */
		assert(!cancelAnswered || lost); /* no confirm after the 200 of a cancel; after lost rows, one without an effect */
		executeConfirm(intent);
		if
		:: confirmedAs(intent) == succeeded -> next = commit_paid
		:: confirmedAs(intent) == declined  -> next = commit_failed /* nobody has the client secret */
		:: confirmedAs(intent) == action    -> awaitAction()
		:: else -> next = wait_read
		fi;
		did("confirm") }
	:: atomic { next == wait_cancel ->
		executeCancel(intent);
		next = (paymentIntent[intent] == canceled -> commit_failed : commit_again);
		did("cancel") }

	/* The COMMIT of a step. */
	:: atomic { committing && !unknown ->
		if
		:: fence(at, token) ->
			over = !row.locked;
#ifndef TRACES
			if
			:: over = false /* it read its clock after the pause */
			:: true
			fi;
#endif
			write(next, intent);
			if
			:: committed(); did("commit")
			:: fault() -> faults++; unknown = true; did("commit-unacknowledged")
			fi;
			over = false
		:: else -> stop(); did("lease-lost")
		fi }
	:: atomic { committing && !unknown && fault() && late.next == idle ->
		faults++; unknown = true;
		late.next = next; late.at = at; late.token = token; late.intent = intent;
		did("commit-delayed") }
	:: atomic { unknown ->
		if
		:: row.token == token && row.at == finished -> committed()
		:: else -> release() /* 503; if the COMMIT was not executed, it never will be */
		fi;
		did("resolve") }

	/* Faults of a run. The response of a lost call was executed, or it arrives later. */
	:: atomic { next != idle && fault() -> faults++; stop(); did("crash") }
	:: atomic { committing && sends[me] != 0 && fault() -> faults++; sends[me] = 0; did("pause") }
	:: atomic { next == wait_create && fault() && (canCreate || !late_create) ->
		faults++;
		if
		:: canCreate    -> executeCreate(intent); release(); did("create-lost")
		:: !late_create -> late_create = true;    release(); did("create-delayed")
		fi }
	:: atomic { next == wait_confirm && fault() ->
		assert(!windowOver(created));
		assert(!cancelAnswered || lost);
		faults++;
		if
		:: executeConfirm(intent);                      release(); did("confirm-lost")
		:: late_confirm == 0 -> late_confirm = intent;  release(); did("confirm-delayed")
		fi }
	:: atomic { next == wait_cancel && fault() ->
		faults++;
		if
		:: executeCancel(intent);                       release(); did("cancel-lost")
		:: late_cancel == 0 -> late_cancel = intent;    release(); did("cancel-delayed")
		fi }
	od
}

#define noCalls (sends[0] == 0 && sends[1] == 0)

/* In a history with lost rows, no run pauses and no call is in flight until another day. */
#define oversleeps (alive != 0 || late_create || late_confirm != 0 || late_cancel != 0)
#ifdef LATE_BY_DAYS
#define punctual true
#else
#define punctual (!lost || !oversleeps)
#endif

/* The fake forgets a key after a day, so lab/model needs traces in which the next day comes later. */
#ifdef TRACES
#define keysForgotten ((create_replay == 0 || today == create_day) && (confirm_replay == absent || today == confirm_day))
#else
#define keysForgotten true
#endif

active proctype environment() {
	byte n;
end:
	do
	/* Time. A lease ends without its run only if that has crashed or pauses. */
#ifndef NO_LEASE
	:: atomic { row.locked && row.token != sends[0] && row.token != sends[1] ->
		row.locked = false;
		standby.locked = false;
		happened("lease-ends") }
#endif
	:: atomic { today < DAYS && noCalls && !row.locked && row.at != unused && row.at != finished && punctual && keysForgotten ->
		today++;
		standby.locked = false;
#ifndef LATE_BY_DAYS
		overslept = overslept || oversleeps;
		stopped = stopped && lost; /* the standby follows again: it is never a day behind */
#endif
		happened("day") }
	:: atomic { create_replay != 0 && today > create_day -> create_replay = 0; happened("create-forgotten") }
	:: atomic { confirm_replay != absent && today > confirm_day -> confirm_replay = absent; happened("confirm-forgotten") }

	/* Late arrivals. */
	:: atomic { late_create && canCreate -> late_create = false; executeCreate(n); n = 0; happened("late-create") }
	:: atomic { late_confirm != 0 -> executeConfirm(late_confirm); late_confirm = 0; happened("late-confirm") }
	:: atomic { late_cancel != 0 -> executeCancel(late_cancel); late_cancel = 0; happened("late-cancel") }
	:: atomic { late.next != idle ->
		if
		:: fence(late.at, late.token) -> write(late.next, late.intent)
		:: else
		fi;
		forgetLateCommit();
		happened("late-commit") }

	/* The customer, who has the client secret: approves, declines, or pays with another card. */
	:: atomic { secret[1] && paymentIntent[1] == action   -> if :: charge(1) :: paymentIntent[1] = declined fi; happened("customer") }
	:: atomic { secret[2] && paymentIntent[2] == action   -> if :: charge(2) :: paymentIntent[2] = declined fi; happened("customer") }
	:: atomic { secret[1] && paymentIntent[1] == declined -> charge(1); happened("second-card") }
	:: atomic { secret[2] && paymentIntent[2] == declined -> charge(2); happened("second-card") }

	/* The client of the cancel. Its first transaction is durable before the order's key is resumed. */
#ifdef CANCEL_NOT_DURABLE
	:: atomic { !cancelAnswered && (row.at == order_created || row.at == charge_created) ->
		if
		:: row.intent != 0 -> executeCancel(row.intent)
		:: else
		fi;
		cancelAnswered = (row.intent == 0 || paymentIntent[row.intent] == canceled);
		happened("cancel-requested") }
#else
	:: atomic { !row.cancel && (row.at == order_created || row.at == charge_created) ->
		row.cancel = true;
#ifdef CANCEL_ANSWERED_EARLY
		cancelAnswered = true;
#endif
		happened("cancel-requested") }
#endif
	:: atomic { row.cancel && row.at == finished && row.answer == failed && !cancelAnswered ->
		assert(charges == 0); /* no 200 of a cancel with money */
		cancelAnswered = true;
		happened("cancel-answered") }

	/* A failover to a standby that lacks everything since some moment. */
	:: atomic { !stopped && !overslept && fault() -> stopped = true; copyRow(standby, row); happened("standby-stops") }
	:: atomic { stopped && !lost && fault() ->
		faults++; lost = true;
		copyRow(row, standby);
		forgetLateCommit();
#ifdef NEW_ROW_SEARCH
		older[1] = (row.at == unused && intents >= 1);
		older[2] = (row.at == unused && intents >= 2);
		older[3] = (row.at == unused && intents >= 3);
#endif
		happened("lost-rows") }
	od
}

/* After lost rows, a client may come back too late. */
active proctype monitor() {
	timeout -> assert(row.at == finished || (lost && row.at == unused)) /* every key ends */
}
