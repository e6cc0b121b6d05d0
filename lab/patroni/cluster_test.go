//go:build patroni

// Package patroni_test runs the program on three PostgreSQL servers under Patroni, and
// kills their leader: make -C lab patroni-check. lab/results/README.md has the results.
package patroni_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/lab/labtest"
)

// Variables of check.sh. Its folder is removed when it ends, with all processes whose
// working directories are below.
const (
	patroniProgram = "PATRONI"
	etcdProgram    = "ETCD"
	serverPrograms = "PG_BIN"
	parentFolder   = "PATRONI_FOLDER"
)

// unprivileged is the user of the servers if the test runs as root, which PostgreSQL rejects.
const unprivileged = 65534

// timeout bounds a wait for the cluster. Patroni's ttl is 30 seconds.
const timeout = 5 * time.Minute

// cluster is etcd and three nodes.
type cluster struct {
	t        *testing.T
	folder   string
	etcdPort int
	password string
	nodes    []*node
}

// node is a server and its Patroni.
type node struct {
	name           string
	folder         string
	port, restPort int
}

// member is a node as Patroni describes it.
type member struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	Timeline int    `json:"timeline"`
}

// newCluster starts a cluster with Patroni's settings, beside its defaults, and waits for
// its standbys.
func newCluster(t *testing.T, synchronous bool) *cluster {
	t.Helper()
	folder, err := os.MkdirTemp(os.Getenv(parentFolder), "cluster-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(folder, 0o711))
	c := &cluster{t: t, folder: folder, etcdPort: freePort(t), password: rand.Text()}
	t.Cleanup(func() { kill(t, folder) })

	etcd := c.newFolder("etcd")
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	c.start(etcd, os.Getenv(etcdProgram), "--data-dir", "data", "--logger", "zap",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)

	for i := range 3 {
		name := fmt.Sprintf("node%d", i+1)
		n := &node{name: name, folder: c.newFolder(name), port: freePort(t), restPort: freePort(t)}
		c.nodes = append(c.nodes, n)
		configuration := filepath.Join(n.folder, "patroni.yml")
		require.NoError(t, os.WriteFile(configuration, []byte(c.configuration(n, synchronous)), 0o600))
		require.NoError(t, os.Chown(configuration, c.user(), c.user()))
		c.startNode(n)
	}
	c.untilReplicated(synchronous)
	// The worst case for a paused leader: each new connection tries it first.
	leader := slices.Index(c.nodes, c.leader())
	c.nodes[0], c.nodes[leader] = c.nodes[leader], c.nodes[0]
	return c
}

func (c *cluster) user() int {
	if os.Geteuid() == 0 {
		return unprivileged
	}
	return os.Geteuid()
}

func (c *cluster) newFolder(name string) string {
	c.t.Helper()
	folder := filepath.Join(c.folder, name)
	require.NoError(c.t, os.Mkdir(folder, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(c.t, os.Chown(folder, unprivileged, unprivileged))
	}
	return folder
}

// start starts a program in a folder, where it also logs.
func (c *cluster) start(folder, program string, args ...string) {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	}
	require.NoError(c.t, cmd.Start())
	go func() { _ = cmd.Wait() }() // it is killed
}

func (c *cluster) startNode(n *node) {
	c.t.Helper()
	c.start(n.folder, os.Getenv(patroniProgram), "patroni.yml")
}

// configuration leaves ttl, loop_wait and retry_timeout at their defaults: 30, 10 and 10
// seconds.
func (c *cluster) configuration(n *node, synchronous bool) string {
	return fmt.Sprintf(`
scope: orders
name: %[1]s
restapi: {listen: "127.0.0.1:%[2]d", connect_address: "127.0.0.1:%[2]d"}
etcd3: {host: "127.0.0.1:%[3]d"}
bootstrap:
  dcs:
    synchronous_mode: %[4]t
    synchronous_mode_strict: %[4]t
    postgresql: {use_pg_rewind: true}
  initdb: [{encoding: UTF8}, {locale: C}, data-checksums]
postgresql:
  listen: 127.0.0.1:%[5]d
  connect_address: 127.0.0.1:%[5]d
  bin_dir: %[6]s
  data_dir: data
  pgpass: pgpass
  parameters: {unix_socket_directories: ""}
  pg_hba:
    - host all all 127.0.0.1/32 scram-sha-256
    - host replication all 127.0.0.1/32 scram-sha-256
  authentication:
    superuser: {username: postgres, password: %[7]s}
    replication: {username: replicator, password: %[7]s}
`, n.name, n.restPort, c.etcdPort, synchronous, n.port, os.Getenv(serverPrograms), c.password)
}

// url returns a connection string of all nodes that selects the leader.
func (c *cluster) url() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", n.port))
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", c.password), Host: strings.Join(hosts, ","),
		Path: "postgres", RawQuery: "target_session_attrs=read-write",
	}
	return u.String()
}

// members returns the nodes as the first running Patroni describes them.
func (c *cluster) members() []member {
	for _, n := range c.nodes {
		if members, err := n.members(c.t.Context()); err == nil {
			return members
		}
	}
	return nil
}

func (n *node) members(ctx context.Context) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/cluster", n.restPort), nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var view struct{ Members []member }
	err = json.NewDecoder(response.Body).Decode(&view)
	return view.Members, err
}

func (c *cluster) leader() *node {
	c.t.Helper()
	for _, m := range c.members() {
		if m.Role == "leader" {
			return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == m.Name })]
		}
	}
	require.Fail(c.t, "the cluster has no leader")
	return nil
}

// untilReplicated waits until both standbys follow the leader, and Patroni lets one of
// them take over.
func (c *cluster) untilReplicated(synchronous bool) {
	c.t.Helper()
	until(c.t, "the cluster has two standbys", func() bool {
		members := c.members()
		roles := map[string]int{}
		for _, m := range members {
			if (m.State == "running" || m.State == "streaming") && m.Timeline == members[0].Timeline {
				roles[m.Role]++
			}
		}
		if roles["leader"] != 1 || synchronous && roles["sync_standby"] != 1 || roles["sync_standby"]+roles["replica"] != 2 {
			return false
		}
		leader, err := pgx.Connect(c.t.Context(), c.url())
		if err != nil {
			return false
		}
		defer leader.Close(c.t.Context())
		var streaming int
		err = leader.QueryRow(c.t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").Scan(&streaming)
		return err == nil && streaming == 2
	}, c.describe)
}

// describe returns the role, timeline and last promotion of each node. If another node than
// the leader was promoted last, the leader has taken the lock from it, and its orders are
// lost.
func (c *cluster) describe() string {
	c.t.Helper()
	var b strings.Builder
	var leader, promoted, last string
	for _, m := range c.members() {
		fmt.Fprintf(&b, "\n%s: %s, %s, timeline %d", m.Name, m.Role, m.State, m.Timeline)
		if m.Role == "leader" {
			leader = m.Name
		}
		if at := c.lastPromotion(m.Name); at != "" {
			fmt.Fprintf(&b, ", promoted at %s", at)
			if at > last {
				promoted, last = m.Name, at
			}
		}
	}
	if leader != "" && promoted != "" && leader != promoted {
		fmt.Fprintf(&b, "\n%s leads, although %s was promoted last: lab/results/README.md, Patroni", leader, promoted)
	}
	return b.String()
}

// lastPromotion returns the time in the log of a node's Patroni, or nothing.
func (c *cluster) lastPromotion(name string) (at string) {
	c.t.Helper()
	log, err := os.ReadFile(filepath.Join(c.folder, name, "log"))
	require.NoError(c.t, err)
	for line := range strings.Lines(string(log)) {
		if before, _, found := strings.Cut(line, " INFO: promoted self to leader"); found {
			at = before
		}
	}
	return at
}

// rewinds returns how often pg_rewind succeeded.
func (c *cluster) rewinds() (n int) {
	c.t.Helper()
	for _, node := range c.nodes {
		log, err := os.ReadFile(filepath.Join(node.folder, "log"))
		require.NoError(c.t, err)
		n += strings.Count(string(log), "pg_rewind exit code=0")
	}
	return n
}

// kill kills a node's Patroni and servers together, as a loss of power does.
func kill(t *testing.T, folder string) {
	t.Helper()
	until(t, "the processes are killed", func() bool { return signal(t, folder, syscall.SIGKILL) == 0 })
}

// signal sends a signal to all processes whose working directories are in or below the
// folder, and counts them.
func signal(t *testing.T, folder string, signal syscall.Signal) (n int) {
	t.Helper()
	directories, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range directories {
		directory, err := os.Readlink(link) // fails if the process has ended
		if err != nil || directory != folder && !strings.HasPrefix(directory, folder+"/") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		require.NoError(t, err)
		if err := syscall.Kill(pid, signal); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
		n++
	}
	return n
}

// until waits for a condition. If it is not true in time, the failure includes the details.
func until(t *testing.T, condition string, done func() bool, details ...func() string) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			for _, detail := range details {
				condition += detail()
			}
			require.Fail(t, "not in time: "+condition)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := labtest.FreePort()
	require.NoError(t, err)
	return port
}
