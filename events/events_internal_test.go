package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
