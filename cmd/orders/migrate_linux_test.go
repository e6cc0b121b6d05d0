package main_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// TestServe_fromEmptyDatabase runs migrate down without a terminal.
func TestMigrateDown_confirmation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		typed      string // NAME: the name of the database
		flags      []string
		question   bool
		rolledBack bool
	}{
		"name of the database":   {typed: "NAME\n", question: true, rolledBack: true},
		"another word":           {typed: "yes\n", question: true},
		"end of input":           {typed: "\x04", question: true},
		"confirmation not asked": {flags: []string{"--yes"}, rolledBack: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			newest := newestMigration(t, pool)
			user, terminal := openTerminal(t)
			_, err := io.WriteString(user, strings.Replace(test.typed, "NAME", pool.Config().ConnConfig.Database, 1))
			require.NoError(t, err)
			program, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), program, append([]string{"migrate", "down"}, test.flags...)...)
			cmd.Env = append(environ(t, "DATABASE_URL="+dbtest.URL(pool)), beProgram+"=1")
			cmd.Stdin = terminal
			out, err := cmd.CombinedOutput()
			require.NoError(t, terminal.Close())
			require.Equal(t, test.rolledBack, err == nil, string(out))
			require.Equal(t, test.rolledBack, newestMigration(t, pool) < newest)
			require.Equal(t, test.question, strings.Contains(string(out), "Type the name of the database to continue: "))
		})
	}
}

func newestMigration(t *testing.T, pool *pgxpool.Pool) (version int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT max(version_id) FROM goose_db_version").Scan(&version))
	return version
}

func openTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close() })
	control := func(request uintptr, argument *int32) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(unsafe.Pointer(argument)))
		require.Zero(t, errno)
	}
	var locked, number int32
	control(syscall.TIOCSPTLCK, &locked)
	control(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return user, program
}
