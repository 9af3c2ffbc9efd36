package cli

import (
	"maps"
	"strings"
	"testing"
)

// threeNodes are settings that form a cluster, with others in their place or besides them.
func threeNodes(others ...string) Input {
	flags := map[string]string{"cluster.node_id": "a", "cluster.peers": "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"}
	for i := 0; i < len(others); i += 2 {
		flags[others[i]] = others[i+1]
	}
	maps.DeleteFunc(flags, func(_, v string) bool { return v == "(none)" })
	return Input{Flags: flags}
}

func TestAClusterNeedsNoMoreThanANameAndItsNodes(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := Load(threeNodes())
	if err != nil {
		t.Fatal(err)
	}
	c := &l.Config
	if c.Cluster.Own().Addr != "127.0.0.1:1" || c.Cluster.Listen() != "127.0.0.1:1" || c.ClusterPath() != "data-cluster" {
		t.Errorf("own %+v, listens on %s, in %s", c.Cluster.Own(), c.Cluster.Listen(), c.ClusterPath())
	}
	write(t, "fila.toml", "[cluster]\nnode_id = 'b'\npeers = ['c=127.0.0.1:3', 'a=127.0.0.1:1', 'b=127.0.0.1:2']\nlisten_addr='127.0.0.1:9'\npath='x'\n")
	if l, err = Load(Input{}); err != nil {
		t.Fatal(err)
	}
	if c = &l.Config; c.Cluster.Own().Addr != "127.0.0.1:2" || c.Cluster.Listen() != "127.0.0.1:9" || c.ClusterPath() != "x" || c.Cluster.Peers[0].ID != "a" {
		t.Errorf("of the file: %+v in %s", c.Cluster, c.ClusterPath())
	}
}

func TestWhatAClusterDoesNotGoWithIsRefused(t *testing.T) {
	for name, x := range map[string]struct {
		others []string
		file   string
		want   []string // nil: it starts
	}{
		"nothing":                     {},
		"off":                         {others: []string{"cluster.node_id", "(none)", "cluster.peers", "(none)", "storage.sync", "never"}},
		"nodes without a name":        {others: []string{"cluster.node_id", "(none)"}, want: []string{"cluster.node_id"}},
		"no nodes":                    {others: []string{"cluster.peers", "(none)"}, want: []string{"cluster.peers", "at least 3"}},
		"two nodes":                   {others: []string{"cluster.peers", "a=127.0.0.1:1,b=127.0.0.1:2"}, want: []string{"cluster.peers", "2 nodes", "neither may go on"}},
		"not one of them":             {others: []string{"cluster.node_id", "d"}, want: []string{"cluster.peers must name this node, d"}},
		"a name with a dot":           {others: []string{"cluster.node_id", "a.b"}, want: []string{"cluster.node_id", "letters, digits and -"}},
		"a name too long":             {others: []string{"cluster.node_id", strings.Repeat("a", 65)}, want: []string{"cluster.node_id", "64"}},
		"a name as long as it may be": {others: []string{"cluster.node_id", strings.Repeat("a", 64), "cluster.peers", strings.Repeat("a", 64) + "=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"}},
		"no name of the cluster":      {others: []string{"cluster.name", ""}, want: []string{"cluster.name", "empty"}},
		"a node twice":                {others: []string{"cluster.peers", "a=127.0.0.1:1,a=127.0.0.1:2,c=127.0.0.1:3"}, want: []string{"a is there twice"}},
		"an address twice":            {others: []string{"cluster.peers", "a=127.0.0.1:1,b=127.0.0.1:1,c=127.0.0.1:3"}, want: []string{"a and b have 127.0.0.1:1"}},
		"no address":                  {others: []string{"cluster.peers", "a,b,c"}, want: []string{"id=host:port"}},
		"no port":                     {others: []string{"cluster.peers", "a=127.0.0.1,b=127.0.0.1:2,c=127.0.0.1:3"}, want: []string{"address of a", "host:port"}},
		"memory":                      {others: []string{"storage.engine", "memory"}, want: []string{"storage.engine memory"}},
		"sync never":                  {others: []string{"storage.sync", "never"}, want: []string{"storage.sync never", "always"}},
		"sync at intervals":           {others: []string{"storage.sync", "interval"}, want: []string{"storage.sync interval"}},
		"queues of a file":            {file: "[[queues]]\nname='q'\n", want: []string{"[[queues]]", "fila queues apply"}},
		"a file of queues":            {others: []string{"server.queues_file", "q.toml"}, want: []string{"server.queues_file"}},
		"another machine":             {others: []string{"cluster.peers", "a=127.0.0.1:1,b=10.0.0.2:2,c=127.0.0.1:3"}, want: []string{"10.0.0.2:2", "cluster.cert_file"}},
		"all interfaces":              {others: []string{"cluster.listen_addr", "0.0.0.0:1"}, want: []string{"0.0.0.0:1"}},
		"a trusted network":           {others: []string{"cluster.peers", "a=127.0.0.1:1,b=10.0.0.2:2,c=127.0.0.1:3", "cluster.trust_network", "true"}},
		"certificates":                {others: []string{"cluster.peers", "a=10.0.0.1:1,b=10.0.0.2:2,c=10.0.0.3:3", "cluster.cert_file", "c", "cluster.key_file", "k", "cluster.ca_file", "a"}},
		"ports for other clients":     {others: []string{"cluster.client_addr", "127.0.0.1:7000", "cluster.sentinel_addr", "127.0.0.1:26379"}},
		"ports without a name":        {others: []string{"cluster.node_id", "(none)", "cluster.peers", "(none)", "cluster.sentinel_addr", "127.0.0.1:26379"}, want: []string{"cluster.sentinel_addr", "cluster.node_id"}},
		"one port twice":              {others: []string{"cluster.client_addr", "127.0.0.1:7000", "cluster.sentinel_addr", "127.0.0.1:7000"}, want: []string{"cluster.sentinel_addr", "port of its own"}},
		"any port twice":              {others: []string{"cluster.client_addr", "127.0.0.1:0", "cluster.sentinel_addr", "127.0.0.1:0"}},
		"the port of any client":      {others: []string{"cluster.client_addr", "127.0.0.1:5555"}, want: []string{"cluster.client_addr", "port of its own"}},
		"a port without certificates": {others: []string{"cluster.client_tls_addr", "127.0.0.1:7000"}, want: []string{"cluster.client_tls_addr", "tls.cert_file"}},
		"a port for other machines":   {others: []string{"cluster.client_addr", "0.0.0.0:7000"}, want: []string{"cluster.client_addr", "auth.password"}},
		"no authority":                {others: []string{"cluster.cert_file", "c", "cluster.key_file", "k"}, want: []string{"belong together"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if x.file != "" {
				write(t, "fila.toml", x.file)
			}
			_, err := Load(threeNodes(x.others...))
			if x.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it starts")
			}
			for _, part := range x.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}
