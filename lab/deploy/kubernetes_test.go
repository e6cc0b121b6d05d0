package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const manifests = root + "/deploy/kubernetes"

// cluster contains the objects of the manifests.
type cluster struct {
	config      map[string]string
	secrets     map[string]map[string]string
	pods        map[string]corev1.PodTemplateSpec // by the name of their workload
	deployments []appsv1.Deployment
	crons       []batchv1.CronJob
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
	policies    []networkingv1.NetworkPolicy
	namespaces  []string
}

// decode rejects unknown fields.
func decode[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	require.NoError(t, yaml.UnmarshalStrict(document, &object), "%s", document)
	return object
}

// newCluster builds the manifests as kubectl apply -k does.
func newCluster(t *testing.T) cluster {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests)
	require.NoError(t, err)
	c := cluster{pods: map[string]corev1.PodTemplateSpec{}}
	for _, resource := range all.Resources() {
		document, err := resource.AsYAML()
		require.NoError(t, err)
		switch kind := resource.GetKind(); kind {
		case "Namespace":
			c.namespaces = append(c.namespaces, decode[corev1.Namespace](t, document).Name)
			continue
		case "ConfigMap":
			c.config = decode[corev1.ConfigMap](t, document).Data
		case "Job":
			c.pods[resource.GetName()] = decode[batchv1.Job](t, document).Spec.Template
		case "CronJob":
			cron := decode[batchv1.CronJob](t, document)
			c.crons = append(c.crons, cron)
			c.pods[resource.GetName()] = cron.Spec.JobTemplate.Spec.Template
		case "Deployment":
			deployment := decode[appsv1.Deployment](t, document)
			c.deployments = append(c.deployments, deployment)
			c.pods[resource.GetName()] = deployment.Spec.Template
		case "Service":
			c.services = append(c.services, decode[corev1.Service](t, document))
		case "PodDisruptionBudget":
			c.budgets = append(c.budgets, decode[policyv1.PodDisruptionBudget](t, document))
		case "NetworkPolicy":
			c.policies = append(c.policies, decode[networkingv1.NetworkPolicy](t, document))
		default:
			require.Fail(t, "no test checks objects of the kind "+kind)
		}
		require.Equal(t, "orders", resource.GetNamespace(), resource.GetName())
	}
	example, err := os.ReadFile(filepath.Join(manifests, "secret.example.yaml"))
	require.NoError(t, err)
	c.secrets = map[string]map[string]string{}
	for _, document := range bytes.Split(example, []byte("\n---\n")) {
		secret := decode[corev1.Secret](t, document)
		require.Equal(t, "orders", secret.Namespace)
		c.secrets[secret.Name] = secret.StringData
	}
	return c
}

// selected returns the workloads whose pods match a selector.
func (c cluster) selected(t *testing.T, selector *metav1.LabelSelector) []string {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	var names []string
	for name, pod := range c.pods {
		if s.Matches(labels.Set(pod.Labels)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestKubernetes_commands(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	require.Equal(t, []string{"orders"}, c.namespaces)
	ran := map[string]bool{}
	for name, pod := range c.pods {
		require.Len(t, pod.Spec.Containers, 1, name)
		container := pod.Spec.Containers[0]
		require.Empty(t, container.Command, "%s: use the command of the image", name)
		require.Regexp(t, `^registry\.example\.com/shop/orders@sha256:[0-9a-f]{64}$`, container.Image, "%s: the image has no digest", name)
		require.Equal(t, "orders", container.EnvFrom[0].ConfigMapRef.Name, name)
		environment := maps.Clone(c.config)
		needed := variablesOf(container.Args)
		for _, source := range container.EnvFrom[1:] {
			require.Contains(t, c.secrets, source.SecretRef.Name, name)
			for variable, value := range c.secrets[source.SecretRef.Name] {
				require.Contains(t, needed, variable, "%s gets a secret that it does not need", name)
				environment[variable] = value
			}
		}
		require.Equal(t, name == "orders-migrate", strings.Contains(environment["DATABASE_URL"], "orders_owner"), "%s: only migrations may use the role that changes the schema", name)
		requireCommand(t, container.Args, environment)
		ran[container.Args[0]] = true

		grace := 30 * time.Second // the default of Kubernetes
		if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
			grace = time.Duration(*seconds) * time.Second
		}
		require.Greater(t, grace, longestStop(t, container.Args, environment), name)
	}
	require.Equal(t, map[string]bool{
		"migrate": true, "serve": true, "worker": true, "completer": true, "reaper": true, "reconcile": true,
	}, ran)
}

// The restricted Pod Security Standard, and memory limits.
func TestKubernetes_pods(t *testing.T) {
	t.Parallel()
	for name, pod := range newCluster(t).pods {
		require.False(t, *pod.Spec.AutomountServiceAccountToken, name)
		require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot, name)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type, name)
		container := pod.Spec.Containers[0]
		require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, name)
		require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, name)
		require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, name)
		require.False(t, container.Resources.Requests.Cpu().IsZero(), name)
		require.False(t, container.Resources.Requests.Memory().IsZero(), name)
		require.Len(t, container.Env, 1, name)
		require.Equal(t, "GOMEMLIMIT", container.Env[0].Name, name)
		soft, err := resource.ParseQuantity(strings.TrimSuffix(container.Env[0].Value, "B"))
		require.NoError(t, err, name)
		require.Negative(t, soft.Cmp(*container.Resources.Limits.Memory()), name)
	}
}

func TestKubernetes_api(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, deployment := range c.deployments {
		require.Equal(t, []string{deployment.Name}, c.selected(t, deployment.Spec.Selector))
		for _, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			require.Equal(t, []string{deployment.Name}, c.selected(t, spread.LabelSelector))
		}
		if deployment.Name == "orders-api" {
			require.GreaterOrEqual(t, *deployment.Spec.Replicas, int32(2))
			require.Zero(t, deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
		}
	}
	api := []string{"orders-api"}
	container := c.pods["orders-api"].Spec.Containers[0]
	port := container.Ports[0]
	require.Equal(t, ":8080", c.config["LISTEN_ADDR"])
	require.EqualValues(t, 8080, port.ContainerPort)
	for probe, path := range map[*corev1.Probe]string{
		container.StartupProbe:   "/healthz",
		container.LivenessProbe:  "/healthz",
		container.ReadinessProbe: "/readyz",
	} {
		require.Equal(t, path, probe.HTTPGet.Path)
		require.Equal(t, "admin", probe.HTTPGet.Port.StrVal, "probes use the admin port, because connections of clients must not delay them")
	}

	// Readiness must fail before the server stops accepting connections.
	unready := time.Duration(container.ReadinessProbe.PeriodSeconds*container.ReadinessProbe.FailureThreshold) * time.Second
	require.Greater(t, flagOf(t, container.Args, "shutdown-delay"), unready)

	require.Len(t, c.services, 1)
	require.Equal(t, api, c.selected(t, &metav1.LabelSelector{MatchLabels: c.services[0].Spec.Selector}))
	require.Equal(t, port.Name, c.services[0].Spec.Ports[0].TargetPort.StrVal)
	require.Len(t, c.budgets, 1)
	require.Equal(t, api, c.selected(t, c.budgets[0].Spec.Selector))

	// The default policy denies all connections. Only the API port is open to all
	// clients, and the admin port to Prometheus.
	open := map[string][]string{}
	for _, policy := range c.policies {
		if len(policy.Spec.Ingress) == 0 {
			require.Len(t, c.selected(t, &policy.Spec.PodSelector), len(c.pods))
			continue
		}
		rule := policy.Spec.Ingress[0]
		open[rule.Ports[0].Port.StrVal] = c.selected(t, &policy.Spec.PodSelector)
		require.Equal(t, rule.Ports[0].Port.StrVal == "http", len(rule.From) == 0, policy.Name)
	}
	require.Equal(t, map[string][]string{"http": api, "admin": {"orders-api", "orders-worker"}}, open)
	require.Equal(t, ":8081", c.config["ADMIN_ADDR"])
	for _, name := range open["admin"] {
		require.Contains(t, c.pods[name].Spec.Containers[0].Ports, corev1.ContainerPort{Name: "admin", ContainerPort: 8081})
	}
	require.Equal(t, "admin", c.pods["orders-worker"].Spec.Containers[0].LivenessProbe.HTTPGet.Port.StrVal)
}

func TestKubernetes_crons(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	require.Len(t, c.crons, 3)
	for _, cron := range c.crons {
		require.Len(t, strings.Fields(cron.Spec.Schedule), 5, cron.Name)
		require.Equal(t, batchv1.ForbidConcurrent, cron.Spec.ConcurrencyPolicy, cron.Name)
		require.Positive(t, *cron.Spec.StartingDeadlineSeconds, cron.Name)
		require.Zero(t, *cron.Spec.JobTemplate.Spec.BackoffLimit, "%s: the next run of the job is the retry", cron.Name)
		require.Positive(t, *cron.Spec.JobTemplate.Spec.ActiveDeadlineSeconds, cron.Name)
		require.Equal(t, corev1.RestartPolicyNever, cron.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy, cron.Name)
	}
}

// The example contains no real secret and is not part of the kustomization.
func TestKubernetes_secret(t *testing.T) {
	t.Parallel()
	for _, secret := range newCluster(t).secrets {
		for name, value := range secret {
			require.True(t, value == "" || strings.Contains(value, "REPLACE"), name)
		}
	}
	require.NotContains(t, read(t, "deploy/kubernetes/kustomization.yaml"), "secret")
}
