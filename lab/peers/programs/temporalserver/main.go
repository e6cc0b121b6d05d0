// Command server is a Temporal server in one process, on PostgreSQL.
//
// It follows https://docs.temporal.io/self-hosted-guide/embedded-server: the four services
// with [temporal.NewServer], their state in PostgreSQL, and the schemas that the module
// embeds for its temporal-sql-tool. The settings are those of its
// config/development-postgres12.yaml, with more shards, because their number limits how many
// workflows advance at once. A production cluster runs the services in processes of their own.
//
//	DATABASE_URL=postgres://… LISTEN=127.0.0.1:7233 server
//
// The databases temporal and temporal_visibility are created beside that of DATABASE_URL.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	sqltool "go.temporal.io/server/tools/sql"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	namespace = "default"
	retention = 72 * time.Hour // of finished workflows, like the responses of the orders API
	shards    = 64
	localhost = "127.0.0.1"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("the server has failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	stores := map[string]config.DataStore{}
	for database, connections := range map[string]int{"temporal": 20, "temporal_visibility": 10} {
		store, err := createStore(ctx, os.Getenv("DATABASE_URL"), database, connections)
		if err != nil {
			return fmt.Errorf("database %s: %w", database, err)
		}
		stores[database] = config.DataStore{SQL: store}
	}
	address := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:7233")
	services, hosts, err := serviceAddresses(address)
	if err != nil {
		return err
	}
	server, err := temporal.NewServer(
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: "warn"}))),
		temporal.InterruptOn(temporal.InterruptCh()),
		temporal.WithConfig(&config.Config{
			Persistence: config.Persistence{
				DefaultStore:     "temporal",
				VisibilityStore:  "temporal_visibility",
				NumHistoryShards: shards,
				DataStores:       stores,
			},
			Services:     services,
			PublicClient: config.PublicClient{HostPort: address},
			ClusterMetadata: &cluster.Config{
				FailoverVersionIncrement: 10,
				MasterClusterName:        "active",
				CurrentClusterName:       "active",
				ClusterInformation: map[string]cluster.ClusterInformation{
					"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address},
				},
			},
			DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
			Archival: config.Archival{
				History:    config.HistoryArchival{State: "disabled"},
				Visibility: config.VisibilityArchival{State: "disabled"},
			},
			NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
				History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
				Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
			}},
		}),
	)
	if err != nil {
		return err
	}
	go registerNamespace(ctx, address)
	return server.Start() // until a signal
}

// createStore creates a database with Temporal's schema, unless it exists.
func createStore(ctx context.Context, url, name string, connections int) (*config.SQL, error) {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer connection.Close(ctx)
	pg := connection.Config()
	var exists bool
	if err := connection.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil {
		return nil, err
	}
	if !exists {
		if _, err := connection.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
			return nil, err
		}
		schema := map[string]string{"temporal": "temporal", "temporal_visibility": "visibility"}[name]
		for _, command := range [][]string{{"setup-schema", "-v", "0.0"}, {"update-schema", "--schema-name", "postgresql/v12/" + schema}} {
			err := sqltool.RunTool(append([]string{
				"temporal-sql-tool", "--pl", postgresql.PluginNamePGX,
				"--ep", pg.Host, "-p", strconv.Itoa(int(pg.Port)), "-u", pg.User, "--pw", pg.Password, "--db", name,
			}, command...))
			if err != nil {
				return nil, err
			}
		}
	}
	return &config.SQL{
		PluginName:      postgresql.PluginNamePGX,
		DatabaseName:    name,
		ConnectAddr:     net.JoinHostPort(pg.Host, strconv.Itoa(int(pg.Port))),
		ConnectProtocol: "tcp",
		User:            pg.User,
		Password:        pg.Password,
		MaxConns:        connections,
		MaxIdleConns:    connections,
		MaxConnLifetime: time.Hour,
	}, nil
}

// serviceAddresses returns the configuration of the four services. Only the frontend is called
// from outside, so the others get free ports.
func serviceAddresses(frontend string) (map[string]config.Service, map[primitives.ServiceName]static.Hosts, error) {
	services := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for _, name := range temporal.DefaultServices {
		address := frontend
		if name != string(primitives.FrontendService) {
			listener, err := net.Listen("tcp", localhost+":0")
			if err != nil {
				return nil, nil, err
			}
			address = listener.Addr().String()
			if err := listener.Close(); err != nil {
				return nil, nil, err
			}
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, nil, err
		}
		services[name] = config.Service{RPC: config.RPC{GRPCPort: number, BindOnIP: localhost}}
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(address)
	}
	return services, hosts, nil
}

// registerNamespace creates the namespace, as soon as the frontend answers.
func registerNamespace(ctx context.Context, address string) {
	for {
		err := func() error {
			c, err := client.NewNamespaceClient(client.Options{HostPort: address})
			if err != nil {
				return err
			}
			defer c.Close()
			return c.Register(ctx, &workflowservice.RegisterNamespaceRequest{
				Namespace:                        namespace,
				WorkflowExecutionRetentionPeriod: durationpb.New(retention),
			})
		}()
		if _, exists := err.(*serviceerror.NamespaceAlreadyExists); err == nil || exists {
			return
		}
		slog.Info("the namespace is not registered yet", "error", err)
		time.Sleep(200 * time.Millisecond)
	}
}
