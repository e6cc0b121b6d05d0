package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const schema = `CREATE TABLE IF NOT EXISTS idempotency_keys (
	key        text PRIMARY KEY,
	status     int,
	response   jsonb,
	created_at timestamptz NOT NULL DEFAULT now())`

// queries is the pool or a transaction.
type queries interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// servePostgresInsert keeps idempotency keys in a table, as many articles show it.
func servePostgresInsert() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")+"&pool_max_conns=32")
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", func(w http.ResponseWriter, r *http.Request) { handle(w, r, pool, charge) })
	mux.HandleFunc("POST /refunds", func(w http.ResponseWriter, r *http.Request) { handle(w, r, pool, refund) })
	return http.ListenAndServe(os.Getenv("ADDR"), mux)
}

func refund(string, []byte) (answer, error) {
	return answer{Status: http.StatusNotFound, Body: map[string]any{"error": "no such charge"}}, nil
}

type work func(account string, body []byte) (answer, error)

func handle(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool, do work) {
	account, key := accountOf(r.Header.Get("Authorization")), r.Header.Get("Idempotency-Key")
	if account == "" {
		respond(w, failure(http.StatusUnauthorized, "unknown credential"))
		return
	}
	if key == "" {
		respond(w, failure(http.StatusBadRequest, "Idempotency-Key is required"))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		respond(w, failure(http.StatusBadRequest, err.Error()))
		return
	}
	// The body is decoded before the key is taken, as by a framework. Otherwise the key would keep the 400.
	if !json.Valid(body) {
		respond(w, failure(http.StatusBadRequest, "the body is not JSON"))
		return
	}
	once := func() (answer, error) { return do(account, body) }
	ctx := context.WithoutCancel(r.Context()) // the response is stored even if the client has gone
	var answered answer
	if os.Getenv("STORE") == "postgres-transaction" {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			answered, err = idempotent(ctx, tx, key, once)
			return err
		})
	} else {
		answered, err = idempotent(ctx, pool, key, once)
	}
	if err != nil {
		answered = failure(http.StatusInternalServerError, err.Error())
	}
	respond(w, answered)
}

// idempotent takes the key, works and stores the response, or returns the stored one.
func idempotent(ctx context.Context, db queries, key string, once func() (answer, error)) (answer, error) {
	inserted, err := db.Exec(ctx, "INSERT INTO idempotency_keys (key) VALUES ($1) ON CONFLICT (key) DO NOTHING", key)
	if err != nil {
		return answer{}, err
	}
	if inserted.RowsAffected() == 0 {
		return stored(ctx, db, key)
	}
	answered, err := once()
	if err != nil || answered.Status >= http.StatusInternalServerError {
		_, deleteErr := db.Exec(ctx, "DELETE FROM idempotency_keys WHERE key = $1", key)
		return answered, errors.Join(err, deleteErr)
	}
	_, err = db.Exec(ctx, "UPDATE idempotency_keys SET status = $2, response = $3 WHERE key = $1", key, answered.Status, answered.Body)
	return answered, err
}

func stored(ctx context.Context, db queries, key string) (answer, error) {
	var status *int
	var answered answer
	err := db.QueryRow(ctx, "SELECT status, response FROM idempotency_keys WHERE key = $1", key).Scan(&status, &answered.Body)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return answered, err
	}
	if status == nil {
		return failure(http.StatusConflict, "the request is in progress"), nil
	}
	answered.Status = *status
	return answered, nil
}

func respond(w http.ResponseWriter, answered answer) {
	w.Header().Set("Content-Type", "application/json")
	if answered.Location != "" {
		w.Header().Set("Location", answered.Location)
	}
	w.WriteHeader(answered.Status)
	_ = json.NewEncoder(w).Encode(answered.Body) // the client may be gone
}
