package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/migrations/dbtest"
	"example.com/orders-api/orders"
	"example.com/orders-api/orders/orderstest"
)

var update = flag.Bool("update", false, "rewrite floor.sql")

func TestMain(m *testing.M) { os.Exit(dbtest.Main{M: m}.Run()) }

// TestGenerated compares floor.sql with the program's statements: the same round trips,
// and values of the same sizes.
func TestGenerated(t *testing.T) {
	t.Parallel()
	tracer := &tracer{}
	pool := idempotencytest.NewPool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
	shop := orderstest.New(t, orderstest.Options{Pool: pool})
	account := shop.Account
	body, err := json.Marshal(orderParams())
	require.NoError(t, err)
	params, err := idempotency.Canonicalize(body)
	require.NoError(t, err)
	request := idempotency.Request{
		AccountID: account, Key: "bench-floor-0000000001", Method: "POST", Path: "/v1/orders", Params: params,
	}

	tracer.pipelines = nil
	result, err := shop.Create(t.Context(), request)
	require.NoError(t, err)
	var order orders.Order
	require.NoError(t, json.Unmarshal(result.Response.Body, &order))
	require.Len(t, tracer.pipelines, 4)
	for _, p := range tracer.pipelines {
		require.NotEmpty(t, p)
	}

	generated := script(tracer.pipelines, []dynamic{
		{account.String(), "'" + floorAccount + "'"},
		{result.KeyID.String(), "md5('key' || :n)::uuid"},
		{order.ID.String(), "md5('order' || :n)::uuid"},
		{*order.PaymentIntentID, "'pi_' || left(md5('intent' || :n), 24)"},
		{string(request.Key), "'bench-floor-' || :n"},
	})
	if *update {
		require.NoError(t, os.WriteFile("floor.sql", []byte(generated), 0o600))
		return
	}
	require.Equal(t, generated, string(floorSQL), "floor.sql is out of date: run make generate")
}

type tracer struct{ pipelines [][]statement }

type statement struct {
	sql  string
	args []any
}

func (t *tracer) record(sql string, args []any) {
	last := &t.pipelines[len(t.pipelines)-1]
	*last = append(*last, statement{sql, args})
}

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.pipelines = append(t.pipelines, nil)
	t.record(data.SQL, data.Args)
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.pipelines = append(t.pipelines, nil)
	return ctx
}

func (t *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	t.record(data.SQL, data.Args)
}

func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// dynamic is a value that differs between orders, and the SQL expression that generates
// it.
type dynamic struct{ value, expression string }

func script(pipelines [][]statement, values []dynamic) string {
	var out strings.Builder
	out.WriteString("-- The SQL of an order, generated from the program's statements (make generate).\n\\set n random(100000000000000, 999999999999999)\n")
	n := 0
	for _, pipeline := range pipelines {
		out.WriteString("\\startpipeline\n")
		for _, s := range pipeline {
			sql := strings.TrimSpace(s.sql)
			for i := len(s.args); i > 0; i-- { // $12 before $1
				n++
				sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d", i), literal(s.args[i-1], values, n))
			}
			out.WriteString(sql + ";\n")
		}
		out.WriteString("\\endpipeline\n")
	}
	return out.String()
}

// literal returns an argument as SQL. n makes generated ids unique in the script.
func literal(arg any, values []dynamic, n int) string {
	switch v := arg.(type) {
	case nil:
		return "NULL"
	case time.Time:
		return "now()"
	case time.Duration:
		return fmt.Sprintf("'%d seconds'", int(v.Seconds()))
	case []byte:
		return `'\x` + hex.EncodeToString(normalize(v, values)) + "'"
	case uuid.UUID:
		for _, d := range values {
			if d.value == v.String() {
				return d.expression
			}
		}
		switch v.Version() {
		case 4: // the lease token, the only random id
			return "md5('lease' || :n)::uuid"
		case 7: // the id of an audit record, ordered by time
			return fmt.Sprintf("(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || left(md5('%d' || :n), 20))::uuid", n)
		default:
			return fmt.Sprintf("md5('%d' || :n)::uuid", n)
		}
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "NULL"
		}
		return literal(v.Elem().Interface(), values, n)
	case reflect.Int, reflect.Int64:
		return fmt.Sprint(v.Int())
	case reflect.String:
		if s := v.String(); !strings.HasPrefix(s, "{") {
			return text(s, values)
		}
		return object(v.String(), values)
	default:
		encoded, err := json.Marshal(arg)
		if err != nil {
			panic(err)
		}
		return object(string(encoded), values)
	}
}

func object(s string, values []dynamic) string {
	if expression := text(s, values); strings.Contains(expression, " || ") {
		return "(" + expression + ")::jsonb"
	}
	return text(s, nil)
}

// text returns a string as SQL, with its dynamic values replaced by expressions.
func text(s string, values []dynamic) string {
	for _, d := range values {
		before, after, found := strings.Cut(s, d.value)
		if !found {
			continue
		}
		parts := []string{d.expression}
		if before != "" {
			parts = append([]string{text(before, values)}, parts...)
		}
		if after != "" {
			parts = append(parts, text(after, values))
		}
		return strings.Join(parts, " || ")
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// normalize replaces timestamps and dynamic values by constants of the same length.
func normalize(b []byte, values []dynamic) []byte {
	s := timestamp.ReplaceAllString(string(b), "2026-01-02T03:04:05.678901Z")
	for _, d := range values {
		s = strings.ReplaceAll(s, d.value, strings.Repeat("x", len(d.value)))
	}
	return []byte(s)
}
