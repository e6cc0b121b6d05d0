//go:build linux

// Package stripemock_test sends the requests of package payments to stripe-mock, which
// validates parameters against Stripe's published API description. The fake in
// payments/stripetest does not.
//
// The first start on a machine builds stripe-mock, which takes some seconds.
package stripemock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/payments"
)

// Before the tests, the tool is built once. Two builds at the same moment write one file,
// and a program cannot be started while its file is open for writing.
func TestMain(m *testing.M) {
	if _, err := build(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestStart(t *testing.T) {
	t.Parallel()
	first, second := start(t), start(t)
	require.NotEqual(t, first, second)
	require.Equal(t, http.StatusOK, create(t, first, "amount=2000&currency=usd"))
	require.Equal(t, http.StatusOK, create(t, second, "amount=2000&currency=usd"))
	require.Equal(t, http.StatusBadRequest, create(t, second, "amount=2000&currency=usd&no_such_parameter=1"))
}

func create(t *testing.T, baseURL, form string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/payment_intents", strings.NewReader(form))
	require.NoError(t, err)
	r.Close = true
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("sk_test_123", "")
	client := &http.Client{}
	resp, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// startTimeout is long: an idle machine reads the API description of 8 MB in a second.
const startTimeout = time.Minute

// start returns the URL of a stripe-mock process, which ends with the test or with a
// killed test binary.
func start(t testing.TB) (baseURL string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("stripemock: %v", err)
	}

	output, printed := io.Pipe()
	// Without -https-addr it uses its default port. The test's context ends, and kills
	// it, before the cleanups run.
	cmd := exec.CommandContext(t.Context(), binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = printed, printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	exited := make(chan struct{})
	t.Cleanup(func() { <-exited })
	go func() {
		defer close(exited)
		// Pdeathsig applies when the starting thread ends, so this thread must stay
		// alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		printed.CloseWithError(errors.Join(errors.New("stripe-mock exited"), cmd.Run()))
	}()

	address := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { failed <- follow(output, address) }()
	select {
	case a := <-address: // printed when it was already listening
		return "http://" + a
	case err := <-failed:
		t.Fatalf("stripemock: %v", err)
	case <-time.After(startTimeout):
		t.Fatalf("stripemock: not listening after %v", startTimeout)
	}
	return ""
}

// build returns the path of the tool in go.mod. "go tool" would add a process between it
// and the test.
func build() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "stripe-mock").Output()
	return strings.TrimSpace(string(out)), err
}

// follow sends the address of stripe-mock, and reads its output until it ends, because
// each request prints a line.
func follow(output io.Reader, address chan<- string) error {
	last := ""
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		last = lines.Text()
		if a, ok := strings.CutPrefix(last, "Listening for HTTP at address: "); ok {
			address <- a
		}
	}
	return fmt.Errorf("%w; last line: %q", lines.Err(), last)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Each call is sent with the parameters of each of its forms. stripe-mock keeps no state, so only the status of its responses is checked.
func TestClient_requests(t *testing.T) {
	t.Parallel()
	var accepted []string
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := payments.New(payments.Config{
		SecretKey: "sk_test_mock",
		BaseURL:   start(t),
		Timeout:   time.Minute,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil {
				accepted = append(accepted, r.Method+" "+r.URL.Path+" "+strconv.Itoa(resp.StatusCode))
			}
			return resp, err
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(client.Close)

	// No retries: without state, no response is about the requested object.
	_, _ = client.Create(t.Context(), "k-create", payments.CreateParams{
		Amount: 2500, Currency: "eur", PaymentMethod: "pm_card_visa", Description: "Order 7b0f",
		Metadata: map[string]string{"order_id": "7b0f", "idempotency_key_id": "k1"},
	})
	_, _ = client.Confirm(t.Context(), "k-confirm", "pi_1", true)
	_, _ = client.Confirm(t.Context(), "k-confirm-2", "pi_1", false)
	_, _ = client.Get(t.Context(), "pi_1")
	_, _ = client.Cancel(t.Context(), "k-cancel", "pi_1")
	_, _ = client.Search(t.Context(), "order_id", uuid.NewString())
	_, _, _ = client.List(t.Context(), time.Unix(1, 0), "")
	_, _, _ = client.List(t.Context(), time.Unix(1, 0), "pi_1")
	_, _ = client.Refund(t.Context(), "k-refund", payments.RefundParams{
		IntentID: "pi_1", Amount: 100, Currency: "usd", Reason: new("requested_by_customer"), Metadata: map[string]string{"refund_id": "r1"},
	})
	_, _ = client.Refund(t.Context(), "k-refund-2", payments.RefundParams{
		IntentID: "pi_1", Amount: 100, Currency: "usd", Metadata: map[string]string{"refund_id": "r1"},
	})
	_, _ = client.ListRefunds(t.Context(), "pi_1")
	_, _, _ = client.ListAllRefunds(t.Context(), time.Unix(1, 0), "")
	_, _, _ = client.ListAllRefunds(t.Context(), time.Unix(1, 0), "re_1")
	_, _ = client.ListDisputes(t.Context(), "pi_1")
	_, _, _, _ = client.ListEvents(t.Context(), time.Unix(1, 0), "")
	_, _, _, _ = client.ListEvents(t.Context(), time.Unix(1, 0), "evt_1")
	require.Equal(t, []string{
		"POST /v1/payment_intents 200",
		"POST /v1/payment_intents/pi_1/confirm 200",
		"POST /v1/payment_intents/pi_1/confirm 200",
		"GET /v1/payment_intents/pi_1 200",
		"POST /v1/payment_intents/pi_1/cancel 200",
		"GET /v1/payment_intents/search 200",
		"GET /v1/payment_intents 200",
		"GET /v1/payment_intents 200",
		"POST /v1/refunds 200",
		"POST /v1/refunds 200",
		"GET /v1/refunds 200",
		"GET /v1/refunds 200",
		"GET /v1/refunds 200",
		"GET /v1/disputes 200",
		"GET /v1/events 200",
		"GET /v1/events 200",
	}, accepted)
}
