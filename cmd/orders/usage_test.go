package main_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

// Each command has the flags, arguments and exit codes that scripts and pages use.
func TestUsage(t *testing.T) {
	t.Parallel()
	for line, test := range map[string]struct {
		code   int
		stdout string // parts of it
		stderr string // its beginning
	}{
		"-h":                              {stdout: "An orders API that charges a card once or not at all.… serve … migrate … accounts keys revoke "},
		"help env":                        {stdout: "  DATABASE_URL\n…LEASE_DURATION (default 90s)"},
		"migrate down -h":                 {stdout: "Usage: orders migrate <what> [flags]\n…--yes"},
		"help accounts keys":              {stdout: " accounts keys list "},
		"jobs delete ID --reason x":       {code: 2, stderr: "<job>: invalid UUID length: 2\n"},
		"help reconcile":                  {stdout: "Usage: orders reconcile [flags]\n…--lost-rows"},
		"erase -h":                        {stdout: "Usage: orders erase --account=ID --order=ID [flags]\n…Amounts, ids and the reference"},
		"--version":                       {stdout: "orders …, go1."},
		"":                                {code: 2, stderr: `expected one of "serve", `},
		"migrate down":                    {code: 2, stderr: "migrate: down deletes the tables and columns of the migration that was applied last: it requires --yes\n"},
		"nope":                            {code: 2, stderr: "unexpected argument nope\n"},
		"serve --port 80":                 {code: 2, stderr: "unknown flag --port\nUsage: orders serve [flags]\n"},
		"worker --every 0s":               {code: 2, stderr: "--every: must be positive, and not empty\n"},
		"keys retry KEY":                  {code: 2, stderr: "missing flags: --reason=STRING\n"},
		"keys retry KEY --by= --reason x": {code: 2, stderr: "--by: must be positive, and not empty\n"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := programtest.Run(t, []string{}, strings.Fields(line)...)
			require.Equal(t, test.code, code)
			if test.code == 0 {
				require.Regexp(t, "(?s)"+strings.ReplaceAll(regexp.QuoteMeta(test.stdout), "…", ".*"), stdout)
				require.Empty(t, stderr)
				return
			}
			require.True(t, strings.HasPrefix(stderr, "orders: "+test.stderr), stderr)
			require.Contains(t, stderr, "--help")
			require.Empty(t, stdout)
		})
	}
}
