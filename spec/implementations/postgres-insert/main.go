// Command postgres-insert keeps idempotency keys in a table, as many articles show it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"

	fixture "example.com/orders-api/spec/implementations/fixtures/go"
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

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")+"&pool_max_conns=32")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", func(w http.ResponseWriter, r *http.Request) { handle(w, r, pool, charge) })
	mux.HandleFunc("POST /refunds", func(w http.ResponseWriter, r *http.Request) { handle(w, r, pool, refund) })
	log.Fatal(http.ListenAndServe(os.Getenv("ADDR"), mux))
}

func charge(account string, body []byte) (fixture.Answer, error) {
	return fixture.Charge(account, body)
}

func refund(string, []byte) (fixture.Answer, error) {
	return fixture.Answer{Status: http.StatusNotFound, Body: map[string]any{"error": "no such charge"}}, nil
}

type work func(account string, body []byte) (fixture.Answer, error)

func handle(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool, do work) {
	account, key := fixture.Account(r.Header.Get("Authorization")), r.Header.Get("Idempotency-Key")
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
	once := func() (fixture.Answer, error) { return do(account, body) }
	ctx := context.WithoutCancel(r.Context()) // the response is stored even if the client has gone
	var answer fixture.Answer
	if os.Getenv("STORE") == "postgres-transaction" {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			answer, err = idempotent(ctx, tx, key, once)
			return err
		})
	} else {
		answer, err = idempotent(ctx, pool, key, once)
	}
	if err != nil {
		answer = failure(http.StatusInternalServerError, err.Error())
	}
	respond(w, answer)
}

// idempotent takes the key, works and stores the response, or returns the stored one.
func idempotent(ctx context.Context, db queries, key string, once func() (fixture.Answer, error)) (fixture.Answer, error) {
	inserted, err := db.Exec(ctx, "INSERT INTO idempotency_keys (key) VALUES ($1) ON CONFLICT (key) DO NOTHING", key)
	if err != nil {
		return fixture.Answer{}, err
	}
	if inserted.RowsAffected() == 0 {
		return stored(ctx, db, key)
	}
	answer, err := once()
	if err != nil || answer.Status >= http.StatusInternalServerError {
		_, deleteErr := db.Exec(ctx, "DELETE FROM idempotency_keys WHERE key = $1", key)
		return answer, errors.Join(err, deleteErr)
	}
	_, err = db.Exec(ctx, "UPDATE idempotency_keys SET status = $2, response = $3 WHERE key = $1", key, answer.Status, answer.Body)
	return answer, err
}

func stored(ctx context.Context, db queries, key string) (fixture.Answer, error) {
	var status *int
	var answer fixture.Answer
	err := db.QueryRow(ctx, "SELECT status, response FROM idempotency_keys WHERE key = $1", key).Scan(&status, &answer.Body)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return answer, err
	}
	if status == nil {
		return failure(http.StatusConflict, "the request is in progress"), nil
	}
	answer.Status = *status
	return answer, nil
}

func failure(status int, message string) fixture.Answer {
	return fixture.Answer{Status: status, Body: map[string]any{"error": message}}
}

func respond(w http.ResponseWriter, answer fixture.Answer) {
	w.Header().Set("Content-Type", "application/json")
	if answer.Location != "" {
		w.Header().Set("Location", answer.Location)
	}
	w.WriteHeader(answer.Status)
	_ = json.NewEncoder(w).Encode(answer.Body) // the client may be gone
}
