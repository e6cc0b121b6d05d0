// Command server installs a Restate server from npm, and becomes it.
//
//	LISTEN=127.0.0.1:8080 server
//
// The package is @restatedev/restate-server, whose licence is the Business Source License 1.1.
// Node.js is needed for npm only. The ingress listens at LISTEN, the admin API at the same port
// of 127.0.0.2 and the node at that of 127.0.0.3, which Linux offers without configuration.
// The settings are Restate's own, without telemetry. The journal is durable while the server
// runs, but each start begins with an empty one, as the lab begins with an empty database.
package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const version = "@restatedev/restate-server@1.7.12"

func main() {
	if err := run(); err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}

func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	folder := filepath.Join(cache, "orders-api", "restate")
	program, err := install(folder)
	if err != nil {
		return err
	}
	data := filepath.Join(folder, "data")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	listen := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080")
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	node := net.JoinHostPort("127.0.0.3", port)
	arguments := []string{
		program, "--no-logo", "--log-filter", "warn", "--node-name", "orders", "--listen-mode", "tcp", "--base-dir", data,
		"--bind-address", node, "--advertised-address", "http://" + node, // without it, the node does not find itself
	}
	return syscall.Exec(program, arguments, append(os.Environ(),
		"RESTATE_INGRESS__BIND_ADDRESS="+listen,
		"RESTATE_ADMIN__BIND_ADDRESS="+net.JoinHostPort("127.0.0.2", port),
		"RESTATE_DISABLE_TELEMETRY=true",
	))
}

// install returns the path of the server's program. The package's own program is a script that
// would remain as a second process.
func install(folder string) (string, error) {
	pattern := filepath.Join(folder, "node_modules", "@restatedev", "restate-server-*", "bin", "restate-server")
	if found, _ := filepath.Glob(pattern); len(found) == 1 {
		return found[0], nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", version) // its script only reports the installation
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	found, _ := filepath.Glob(pattern)
	if len(found) != 1 {
		return "", fmt.Errorf("npm has no Restate server for this system: %s", pattern)
	}
	return found[0], nil
}
