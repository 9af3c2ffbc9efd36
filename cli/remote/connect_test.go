package remote

import (
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// targetOf is where a command with these flags and variables goes.
func targetOf(args, environ []string) (target, error) {
	var got target
	var err error
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	c := Connecting(cmd, &Env{Environ: environ})
	cmd.RunE = func(*cobra.Command, []string) error {
		got, err = c.target()
		return err
	}
	cmd.SetArgs(args)
	return got, cmd.Execute()
}

func TestFlagsComeBeforeTheURLAndThatBeforeDefaults(t *testing.T) {
	const url = "FILA_URL=fila://worker:s3cret@10.0.0.7:7000"
	for _, x := range []struct {
		args, environ []string
		want          string // address, user, password, whether with TLS
	}{
		{nil, nil, "127.0.0.1:5555 default  false"},
		{nil, []string{"FILA_AUTH__PASSWORD=s3cret"}, "127.0.0.1:5555 default s3cret false"},
		{nil, []string{url}, "10.0.0.7:7000 worker s3cret false"},
		{nil, []string{url, "FILA_AUTH__PASSWORD=other"}, "10.0.0.7:7000 worker s3cret false"},
		{[]string{"--addr", "10.0.0.8:7001"}, []string{url}, "10.0.0.8:7001 worker s3cret false"},
		{[]string{"--user", "deploy"}, []string{url}, "10.0.0.7:7000 deploy s3cret false"},
		{[]string{"-u", "rediss://10.0.0.9"}, []string{url}, "10.0.0.9:5555 default  true"},
		{[]string{"--url", "redis://:s3cret@[::1]:7000/0"}, nil, "[::1]:7000 default s3cret false"},
		{[]string{"--url", "filas://a:b%40c%2F@broker.example.com/"}, nil, "broker.example.com:5555 a b@c/ true"},
		{[]string{"--tls"}, []string{url}, "10.0.0.7:7000 worker s3cret true"},
		{[]string{"--tls=false"}, []string{"FILA_URL=filas://10.0.0.7"}, "10.0.0.7:5555 default  false"},
	} {
		got, err := targetOf(x.args, x.environ)
		if text := fmt.Sprintf("%s %s %s %t", got.addr, got.user, got.password, got.tls != nil); err != nil || text != x.want {
			t.Errorf("%q with %q goes to %q (%v), want %q", x.args, x.environ, text, err, x.want)
		}
	}
}
