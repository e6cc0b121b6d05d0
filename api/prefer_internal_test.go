package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadPreferences_forms(t *testing.T) {
	t.Parallel()
	async := preferences{respondAsync: true}
	wait := func(seconds int) preferences { return preferences{wait: time.Duration(seconds) * time.Second} }
	both := preferences{respondAsync: true, wait: 10 * time.Second}
	for name, test := range map[string]struct {
		lines []string
		want  preferences
	}{
		"none":                    {nil, preferences{}},
		"respond-async":           {[]string{"respond-async"}, async},
		"with a value":            {[]string{"respond-async=no"}, preferences{}},
		"wait":                    {[]string{"wait=20"}, wait(20)},
		"upper case, white space": {[]string{" \tWAIT = 20 "}, wait(20)},
		"quoted":                  {[]string{`wait="20"`}, wait(20)},
		"above the maximum":       {[]string{"wait=31"}, wait(30)},
		"without a value":         {[]string{"wait"}, preferences{}},
		"both":                    {[]string{"respond-async, wait=10"}, both},
		"the first wait counts":   {[]string{"wait=5, wait=10"}, wait(5)},
		"parameters are dropped":  {[]string{"wait=10; a=b ; c, respond-async;d"}, both},
		"unknown ones":            {[]string{`return=minimal, wait=10; x, handling="lenient", respond-async, priority=1`}, both},
	} {
		require.Equal(t, test.want, readPreferences(http.Header{"Prefer": test.lines}), name)
	}
}
