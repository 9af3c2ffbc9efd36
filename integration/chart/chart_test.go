// Package chart tests the Helm chart in deploy/chart with Helm's own library: what it renders is decoded strictly into the
// published types of Kubernetes and of the operator of Prometheus, and a broker takes the settings that its pods get.
package chart

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const dir = "../../deploy/chart"

// rendered are the objects of a release by kind and name.
type rendered map[string]runtime.Object

// render renders the chart for the release "prod" in the namespace "jobs", or returns what a user would read.
func render(t *testing.T, text string) (rendered, error) {
	t.Helper()
	values, err := common.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "prod", Namespace: "jobs", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	objects := rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		documents := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(files[name])))
		for document := make([]byte, len(files[name])+1); ; {
			n, err := documents.Read(document)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(name, err)
			}
			if strings.TrimSpace(string(document[:n])) == "" {
				continue
			}
			object, kind, err := strict.Decode(document[:n], nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document[:n])
			}
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				t.Fatal(err)
			}
			key := kind.Kind + " " + (&unstructured.Unstructured{Object: fields}).GetName()
			if objects[key] != nil {
				t.Errorf("%s is there twice", key)
			}
			objects[key] = object
		}
	}
	return objects, nil
}

// get returns an object of a release.
func get[T runtime.Object](t *testing.T, objects rendered, key string) T {
	t.Helper()
	o, is := objects[key].(T)
	if !is {
		t.Fatalf("there is no %s, but %q", key, slices.Sorted(maps.Keys(objects)))
	}
	return o
}

// environment returns the variables that a pod of the broker gets, those of a field or a secret as text.
func environment(c *core.Container) map[string]string {
	all := map[string]string{}
	for _, v := range c.Env {
		switch from := v.ValueFrom; {
		case from == nil:
			all[v.Name] = v.Value
		case from.FieldRef != nil:
			all[v.Name] = "prod-fila-0"
		default:
			all[v.Name] = "secret " + from.SecretKeyRef.Name
		}
	}
	return all
}

const everything = `
nodes: 3
auth: { existingSecret: given }
settings: { server.memory_bytes: 50000000000, log.level: debug }
tls: { secret: clients }
cluster: { secret: nodes }
serviceMonitor: { enabled: true, labels: { release: prometheus } }
sqs: { enabled: true, keysSecret: keys, publicURL: "https://sqs.example.com" }
storage: { class: fast }
service: { type: LoadBalancer, annotations: { a: b } }
imagePullSecrets: [{ name: pull }]
podAnnotations: { c: d }
nodeSelector: { disk: ssd }
tolerations: [{ key: broker, operator: Exists }]
`

// release is the release of Fila that these sources are, or become: the chart is a part of it.
func release(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../../cli/version.go")
	if err != nil {
		t.Fatal(err)
	}
	next := regexp.MustCompile(`const next = "(.+)"`).FindSubmatch(source)
	if next == nil {
		t.Fatal("cli/version.go does not say what is next")
	}
	return string(next[1])
}

func TestTheChartHasTheVersionOfItsRelease(t *testing.T) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m, want := chart.Metadata, release(t); m.Version != want || m.AppVersion != want {
		t.Errorf("deploy/chart/Chart.yaml has version %s and appVersion %s, the release is %s", m.Version, m.AppVersion, want)
	}
}

func TestOneNode(t *testing.T) {
	objects, err := render(t, `auth: { password: "a: 'b'" }`)
	if err != nil {
		t.Fatal(err)
	}
	if keys, expected := slices.Sorted(maps.Keys(objects)), []string{"NetworkPolicy prod-fila", "Secret prod-fila", "Service prod-fila", "Service prod-fila-nodes", "StatefulSet prod-fila"}; !slices.Equal(keys, expected) {
		t.Errorf("it has %q, not %q", keys, expected)
	}
	if s := get[*core.Secret](t, objects, "Secret prod-fila").StringData["password"]; s != "a: 'b'" {
		t.Errorf("the password is %q", s)
	}
	set := get[*apps.StatefulSet](t, objects, "StatefulSet prod-fila")
	c := &set.Spec.Template.Spec.Containers[0]
	if *set.Spec.Replicas != 1 || c.Image != "fila:"+release(t) {
		t.Errorf("%d replicas of %s", *set.Spec.Replicas, c.Image)
	}
	for name := range environment(c) {
		if strings.HasPrefix(name, "FILA_CLUSTER__") {
			t.Errorf("a single node has %s", name)
		}
	}
}

func TestThreeNodes(t *testing.T) {
	objects, err := render(t, "nodes: 3\nauth: { existingSecret: given }")
	if err != nil {
		t.Fatal(err)
	}
	set := get[*apps.StatefulSet](t, objects, "StatefulSet prod-fila")
	env := environment(&set.Spec.Template.Spec.Containers[0])
	for name, value := range map[string]string{
		"FILA_AUTH__PASSWORD":          "secret given",
		"FILA_CLUSTER__NODE_ID":        "prod-fila-0",
		"FILA_CLUSTER__PEERS":          "prod-fila-0=prod-fila-0.prod-fila-nodes.jobs.svc:5575,prod-fila-1=prod-fila-1.prod-fila-nodes.jobs.svc:5575,prod-fila-2=prod-fila-2.prod-fila-nodes.jobs.svc:5575",
		"FILA_CLUSTER__ADVERTISE_HOST": "$(FILA_CLUSTER__NODE_ID).prod-fila-nodes.jobs.svc",
		"FILA_CLUSTER__TRUST_NETWORK":  "true",
		"FILA_ADMIN__HOSTS":            "prod-fila\nprod-fila.jobs\nprod-fila.jobs.svc\nprod-fila.jobs.svc.cluster.local\nprod-fila-0.prod-fila-nodes.jobs.svc\nprod-fila-1.prod-fila-nodes.jobs.svc\nprod-fila-2.prod-fila-nodes.jobs.svc",
	} {
		if env[name] != value {
			t.Errorf("%s is %q, not %q", name, env[name], value)
		}
	}
	if *set.Spec.Replicas != 3 || set.Spec.PodManagementPolicy != apps.ParallelPodManagement || len(set.Spec.Template.Spec.TopologySpreadConstraints) != 2 {
		t.Errorf("the nodes do not start side by side on machines of their own: %+v", set.Spec)
	}
	if nodes := get[*core.Service](t, objects, "Service prod-fila-nodes"); !nodes.Spec.PublishNotReadyAddresses || nodes.Spec.ClusterIP != core.ClusterIPNone {
		t.Errorf("nodes that are not ready have no names: %+v", nodes.Spec)
	}
	if budget := get[*policy.PodDisruptionBudget](t, objects, "PodDisruptionBudget prod-fila"); budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%+v", budget.Spec)
	}
	for _, rule := range get[*networking.NetworkPolicy](t, objects, "NetworkPolicy prod-fila").Spec.Ingress {
		if rule.Ports[0].Port.StrVal == "nodes" && rule.From[0].PodSelector.MatchLabels["app.kubernetes.io/component"] != "broker" {
			t.Errorf("others reach the port between nodes: %+v", rule)
		}
	}
}

func TestEverything(t *testing.T) {
	objects, err := render(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	set := get[*apps.StatefulSet](t, objects, "StatefulSet prod-fila")
	pod := set.Spec.Template.Spec
	env := environment(&pod.Containers[0])
	if env["FILA_SERVER__MEMORY_BYTES"] != "50000000000" || env["FILA_LOG__LEVEL"] != "debug" || env["FILA_CLUSTER__TRUST_NETWORK"] != "" {
		t.Errorf("%q", env)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted := m.Name == "data" || slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
		if !mounted {
			t.Errorf("no volume %s", m.Name)
		}
	}
	if size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[core.ResourceStorage]; size.Cmp(resource.MustParse("20Gi")) != 0 {
		t.Errorf("%v of disk", size)
	}
	monitor := get[*monitoring.ServiceMonitor](t, objects, "ServiceMonitor prod-fila")
	service := get[*core.Service](t, objects, "Service prod-fila")
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[label] != value {
			t.Errorf("the monitor selects %s=%s, the service has %q", label, value, service.Labels)
		}
	}
	gateway := get[*apps.Deployment](t, objects, "Deployment prod-fila-sqs").Spec.Template
	env = environment(&gateway.Spec.Containers[0])
	if env["FILA_URL"] != "fila://prod-fila:5555" || env["FILA_SQS_PUBLIC_URL"] != "https://sqs.example.com" {
		t.Errorf("%q", env)
	}
	for key, selector := range map[string]map[string]string{
		"Service prod-fila":       service.Spec.Selector,
		"Service prod-fila-nodes": get[*core.Service](t, objects, "Service prod-fila-nodes").Spec.Selector,
		"StatefulSet prod-fila":   set.Spec.Selector.MatchLabels,
	} {
		for label, value := range selector {
			if set.Spec.Template.Labels[label] != value {
				t.Errorf("%s does not select the pods of the broker: %s=%s", key, label, value)
			}
		}
		if maps.Equal(selector, gateway.Labels) {
			t.Errorf("%s selects the gateway", key)
		}
	}
	// Every port that is named in a probe, a service or a policy is one of the container.
	ports := map[string]bool{}
	for _, p := range append(pod.Containers[0].Ports, gateway.Spec.Containers[0].Ports...) {
		ports[p.Name] = true
	}
	for key, object := range objects {
		for _, name := range targets(object) {
			if !ports[name] {
				t.Errorf("%s: no container has the port %q", key, name)
			}
		}
	}
}

// targets returns the names of ports that an object refers to.
func targets(object runtime.Object) []string {
	var names []string
	switch o := object.(type) {
	case *core.Service:
		for _, p := range o.Spec.Ports {
			names = append(names, p.TargetPort.StrVal)
		}
	case *networking.NetworkPolicy:
		for _, rule := range o.Spec.Ingress {
			for _, p := range rule.Ports {
				names = append(names, p.Port.StrVal)
			}
		}
	case *monitoring.ServiceMonitor:
		for _, e := range o.Spec.Endpoints {
			names = append(names, e.Port)
		}
	}
	return names
}

func TestValuesThatAreWrongAreNamed(t *testing.T) {
	for _, c := range []struct{ values, says string }{
		{"nodes: 1", `auth: name a secret with the key "password"`},
		{"nodes: 2\nauth: { password: x }", "/nodes"},
		{"node: 3\nauth: { password: x }", "node"},
		{"nodes: 3\nauth: { password: x }\nnetworkPolicy: { enabled: false }", "all that reaches the port between nodes"},
		{"auth: { password: x }\nsettings: { server.listen_addr: '0.0.0.0:7000' }", "settings: server.listen_addr"},
		{"auth: { password: x }\nsettings: { storage.path: /tmp/x }", "settings: storage.path"},
		{"auth: { password: x }\nsettings: { auth.password: y }", "settings: auth.password"},
		{"auth: { password: x }\nsqs: { enabled: true }", "sqs.keysSecret"},
		{"auth: { password: x }\nstorage: { size: 20 GB }", "/storage/size"},
	} {
		if _, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, without %q", c.values, err, c.says)
		}
	}
}

// A variable that is there twice is refused by the server, or one of its values is taken silently.
func TestASettingTakesThePlaceOfTheCharts(t *testing.T) {
	objects, err := render(t, "nodes: 3\nauth: { password: x }\ntls: { secret: s }\nsettings: { admin.hosts: fila.example.com, server.shutdown_timeout_ms: 100000, tls.auth_clients: optional, log.level: debug }")
	if err != nil {
		t.Fatal(err)
	}
	pod := get[*apps.StatefulSet](t, objects, "StatefulSet prod-fila").Spec.Template.Spec
	if *pod.TerminationGracePeriodSeconds <= 100 {
		t.Errorf("a broker that may take 100 s to stop is killed after %d s", *pod.TerminationGracePeriodSeconds)
	}
	c := &pod.Containers[0]
	seen := map[string]int{}
	for _, v := range c.Env {
		if seen[v.Name]++; seen[v.Name] == 2 {
			t.Errorf("%s is there twice", v.Name)
		}
	}
	env := environment(c)
	if !strings.HasSuffix(env["FILA_ADMIN__HOSTS"], "\nfila.example.com") || env["FILA_TLS__AUTH_CLIENTS"] != "optional" {
		t.Errorf("%q", env)
	}
}

func TestLint(t *testing.T) {
	for _, text := range []string{"auth: { password: x }", everything} {
		values, err := common.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(dir, values, "jobs").Messages {
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Error(m)
			}
		}
	}
}

// A broker takes the settings that its pods get, as far as they name no files of a pod.
func TestABrokerTakesTheSettings(t *testing.T) {
	broker := os.Getenv("TEST_BROKER")
	if broker == "" {
		if broker = "../../bin/fila"; os.Getenv("CI") == "" {
			if _, err := os.Stat(broker); err != nil {
				t.Skip("no broker: make build, or name one in TEST_BROKER")
			}
		}
	}
	for _, values := range []string{"auth: { password: x }", "nodes: 5\nauth: { password: x }\nsettings: { log.level: debug, cluster.election_ms: 2000 }"} {
		objects, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), broker, "config")
		// As the image has them, deploy/Dockerfile.
		cmd.Env = append(os.Environ(), "FILA_SERVER__LISTEN_ADDR=0.0.0.0:5555", "FILA_STORAGE__PATH="+t.TempDir(), "FILA_ADMIN__LISTEN_ADDR=0.0.0.0:5557", "FILA_ADMIN__PLAIN=true")
		for name, value := range environment(&get[*apps.StatefulSet](t, objects, "StatefulSet prod-fila").Spec.Template.Spec.Containers[0]) {
			cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s", name, strings.ReplaceAll(value, "$(FILA_CLUSTER__NODE_ID)", "prod-fila-0")))
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s\n%v: %s", values, err, out)
		}
	}
}
