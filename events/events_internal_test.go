package events

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIsPublic(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"93.184.216.34": true, "1.1.1.1": true, "2606:4700:4700::1111": true,
		"127.0.0.1": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "fd00::1": false,
		"169.254.169.254": false, "fe80::1": false, "fd00:ec2::254": false, "100.64.0.1": false,
		"192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001::1": false, "::7f00:1": false, "ff02::1": false,
	} {
		require.Equal(t, want, isPublic(netip.MustParseAddr(address)), address)
	}
	require.False(t, isPublic(netip.MustParseAddr("::ffff:10.0.0.1").Unmap()))
}

// The vectors that are published for implementations of Standard Webhooks.
func TestMAC(t *testing.T) {
	t.Parallel()
	for _, vector := range [][3]string{
		{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}`, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		{"C2FVsBQIhrscChlQIMV+b5sSYspob7oD", `msg_27UH4WbU6Z5A5EzD8u03UvzRbpk.1649367553.{"email":"test@example.com","username":"test_user"}`, "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="},
	} {
		key, err := base64.StdEncoding.DecodeString(vector[0])
		require.NoError(t, err)
		require.Equal(t, vector[2], base64.StdEncoding.EncodeToString(Key(key).mac(vector[1])))
	}
}

func TestValidURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"https://shop.example/events?a=b": true, "https://shop.example:8443": true, "http://localhost:9000/events": true,
		"http://127.0.0.1:9000": true, "http://[::1]:9000": true, "https://shop.example/" + strings.Repeat("x", 2048-21): true,
		"https://shop.example/" + strings.Repeat("x", 2048-20): false, "http://shop.example": false, "http://10.0.0.1": false,
		"https://user@shop.example": false, "https://shop.example/#a": false, "https://": false, "shop.example": false,
		"ftp://127.0.0.1": false, "https://shop.example/\n": false, "": false,
	} {
		require.Equal(t, want, validURL(url), url)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 28, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, " 3 ": 3 * time.Second, "soon": 0, "-5": -5 * time.Second,
		"86401": 24 * time.Hour, "999999999999999": 24 * time.Hour, "99999999999999999999": 0,
		"Fri, 20 Nov 2026 09:33:00 GMT": 5 * time.Minute, "Fri, 20 Nov 2099 09:33:00 GMT": 24 * time.Hour,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}
