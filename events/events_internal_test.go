package events

import (
	"encoding/json"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	ordersapi "example.com/orders-api"
	"example.com/orders-api/internal/jobs"
)

// The vectors that are published for implementations of Standard Webhooks.
func TestSign(t *testing.T) {
	t.Parallel()
	for _, vector := range []struct {
		secrets, id string
		at          int64
		body, want  string
	}{
		{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1649367553, `{"email":"test@example.com","username":"test_user"}`, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="},
		{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD, whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, `{"test": 2432232314}`, "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	} {
		secrets, err := ParseSecrets(vector.secrets)
		require.NoError(t, err)
		require.Equal(t, vector.want, secrets.sign(vector.id, time.Unix(vector.at, 0), []byte(vector.body)))
	}
}

// The contract has an event as it is sent, with the secret of its signature.
func TestSign_contract(t *testing.T) {
	t.Parallel()
	var contract struct {
		Components struct {
			Parameters map[string]struct{ Description, Example string }
		}
	}
	require.NoError(t, yaml.Unmarshal(ordersapi.Spec, &contract))
	header := contract.Components.Parameters
	sent := regexp.MustCompile(`(?s)` + "`(whsec_[^`]+)`" + `.*\n    (\{.*\})\n`).FindStringSubmatch(header["WebhookSignature"].Description)
	require.NotNil(t, sent)
	var event struct {
		Type      string
		Timestamp time.Time
		AccountID uuid.UUID `json:"account_id"`
		Data      ShopEvent
	}
	require.NoError(t, json.Unmarshal([]byte(sent[2]), &event))
	event.Data.Type = event.Type
	args, err := json.Marshal(event.Data)
	require.NoError(t, err)
	body, err := body(jobs.Job{ID: uuid.MustParse(header["WebhookId"].Example), AccountID: event.AccountID, CreatedAt: event.Timestamp, Args: args})
	require.NoError(t, err)
	require.Equal(t, sent[2], string(body))

	secrets, err := ParseSecrets(sent[1])
	require.NoError(t, err)
	seconds, err := strconv.ParseInt(header["WebhookTimestamp"].Example, 10, 64)
	require.NoError(t, err)
	require.Equal(t, header["WebhookSignature"].Example, secrets.sign(header["WebhookId"].Example, time.Unix(seconds, 0), body))
}

func TestParseSecrets(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for text, want := range map[string]int{
		secret: 1, " " + secret + " , " + secret: 2, secret + "," + secret + "," + secret: 0, secret + ",": 0, "": 0,
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": 0, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS": 0, "whsec_c2hvcnQ=": 0, secret + " " + secret: 0,
	} {
		secrets, err := ParseSecrets(text)
		require.Len(t, secrets, want, text)
		require.Equal(t, want == 0, err != nil, text)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 28, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, " 3 ": 3 * time.Second, "soon": 0, "-5": -5 * time.Second,
		"86401": 24 * time.Hour, "99999999999999999999": 24 * time.Hour, "Fri, 20 Nov 2026 09:33:00 GMT": 5 * time.Minute,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}
