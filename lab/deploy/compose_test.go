package deploy_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// project loads docker-compose.yml with the library of docker compose.
func project(t *testing.T, environment []string, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{root + "/docker-compose.yml"},
		cli.WithEnv(environment), cli.WithProfiles(profiles), cli.WithName("orders-api"))
	require.NoError(t, err)
	p, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return p
}

func TestCompose_profiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ profiles, services []string }{
		"make up":     {nil, []string{"mailpit", "postgres"}},
		"app":         {[]string{"app"}, []string{"api", "completer", "mailpit", "migrate", "postgres", "reaper", "stripe", "worker"}},
		"stripe-test": {[]string{"stripe-test"}, []string{"api-stripe-test", "completer-stripe-test", "mailpit", "migrate", "postgres", "reaper", "stripe-test-key", "worker-stripe-test"}},
		"all":         {[]string{"*"}, []string{"api", "api-stripe-test", "completer", "completer-stripe-test", "mailpit", "migrate", "postgres", "reaper", "stripe", "stripe-test-key", "worker", "worker-stripe-test"}},
	} {
		names := project(t, nil, test.profiles...).ServiceNames()
		slices.Sort(names)
		require.Equal(t, test.services, names, name)
	}
}

// targets maps this repository's images to stages of the Dockerfile.
var targets = map[string]string{"orders-api": "orders", "orders-api-stripetest": "stripetest"}

func TestCompose_services(t *testing.T) {
	t.Parallel()
	p := project(t, nil, "*")
	var built []string
	for name, service := range p.Services {
		for _, port := range service.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s: a port is published on an address other than 127.0.0.1", name)
		}
		require.True(t, service.ReadOnly, name)
		require.Contains(t, service.SecurityOpt, "no-new-privileges:true", name)
		if target := targets[service.Image]; target == "" {
			require.Regexp(t, `^[^:@]+:v?\d`, service.Image, "%s: the image has no version", name)
		} else if require.Equal(t, []string{"ALL"}, service.CapDrop, name); service.Build != nil {
			require.Equal(t, target, service.Build.Target, name)
			built = append(built, service.Image)
		}
		for other, dependency := range service.DependsOn {
			switch dependency.Condition {
			case types.ServiceConditionHealthy:
				require.NotNil(t, p.Services[other].HealthCheck, "%s waits until %s is healthy, which has no health check", name, other)
			case types.ServiceConditionCompletedSuccessfully:
				require.Contains(t, []string{"", "no"}, p.Services[other].Restart, "%s waits until %s has exited, which is restarted", name, other)
			}
		}
	}
	require.ElementsMatch(t, []string{"orders-api", "orders-api-stripetest"}, built, "each image is built once")
	require.Equal(t, "/var/lib/postgresql", p.Services["postgres"].Volumes[0].Target, "PostgreSQL 18 stores its data in this folder")
}

func TestCompose_commands(t *testing.T) {
	t.Parallel()
	ran := map[string]bool{}
	for name, service := range project(t, []string{"STRIPE_SECRET_KEY=sk_test_1"}, "*").Services {
		switch targets[service.Image] {
		case "":
			continue
		case "stripetest":
			out, err := exec.CommandContext(t.Context(), program(t, "stripetest"), append(slices.Clone(service.Command), "-h")...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			continue
		}
		environment := map[string]string{}
		for variable, value := range service.Environment {
			require.NotNil(t, value, "%s of %s", variable, name)
			environment[variable] = *value
		}
		requireCommand(t, service.Command, environment)
		ran[service.Command[0]] = true

		grace := 10 * time.Second // the default of Docker
		if service.StopGracePeriod != nil {
			grace = time.Duration(*service.StopGracePeriod)
		}
		require.Greater(t, grace, longestStop(t, service.Command, environment), name)
		if check := service.HealthCheck; check != nil {
			require.Equal(t, []string{"CMD", "/orders"}, []string(check.Test[:2]), name)
			_, err := orders(t, append(slices.Clone(check.Test[2:]), "-h")...)
			require.NoError(t, err, name)
			require.Greater(t, time.Duration(*check.Timeout), 3*time.Second, "%s: as long as the command waits", name)
		}
	}
	require.Equal(t, map[string]bool{"migrate": true, "serve": true, "worker": true, "completer": true, "reaper": true}, ran)
}

// A live key in the environment must not charge cards.
func TestCompose_testKey(t *testing.T) {
	t.Parallel()
	for key, accepted := range map[string]bool{
		"sk_test_1":      true,
		"rk_test_1":      true,
		"":               false,
		"sk_test_":       false,
		"sk_live_canary": false,
		"sk_canary":      false,
	} {
		service := project(t, []string{"STRIPE_SECRET_KEY=" + key}, "stripe-test").Services["stripe-test-key"]
		line := append(slices.Clone(service.Entrypoint), service.Command...)
		shell := exec.CommandContext(t.Context(), line[0], line[1:]...)
		shell.Env = []string{"STRIPE_SECRET_KEY=" + *service.Environment["STRIPE_SECRET_KEY"]}
		out, err := shell.CombinedOutput()
		require.Equal(t, accepted, err == nil, "%q: %s", key, out)
		require.Equal(t, accepted, len(out) == 0, "%q: %s", key, out)
		require.NotContains(t, string(out), "canary")
	}
}
