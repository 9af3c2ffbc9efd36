package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestSettingsThatAreNotValid(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-listen-addr", "0.0.0.0:0"}, "no loopback address"},
		{[]string{"-listen-addr", "nowhere"}, "listen-addr"},
		{[]string{"-url", "http://x"}, "FILA_URL"},
		{[]string{"-url", "redis://u:s3cret pass@x"}, "FILA_URL"},
		{[]string{"-keys-file", "/does/not/exist"}, "access keys"},
		{[]string{"-tls-cert-file", "x"}, "go together"},
		{[]string{"-connections", "0"}, "connections"},
		{[]string{"-account", "1"}, "12 digits"},
		{[]string{"more"}, "unknown argument"},
	} {
		var out bytes.Buffer
		err := run(context.Background(), c.args, &out)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v shows the password: %v", c.args, err)
		}
	}
}

func TestTheEnvironmentSetsAndFlagsComeFirst(t *testing.T) {
	t.Setenv("FILA_URL", "filas://elsewhere:1")
	t.Setenv("FILA_SQS_LISTEN_ADDR", "127.0.0.1:1")
	var out bytes.Buffer
	s, err := parse([]string{"-listen-addr", "127.0.0.1:2"}, &out)
	if err != nil || s.url != "filas://elsewhere:1" || s.listen != "127.0.0.1:2" {
		t.Errorf("%+v, %v", s, err)
	}
	if o, err := broker(s); err != nil || o.TLSConfig == nil || o.Addrs[0] != "elsewhere:1" {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := parse([]string{"-help"}, &out); err == nil || !strings.Contains(out.String(), "FILA_SQS_KEYS_FILE") {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestTheEndOfTheContextEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, []string{"-listen-addr", "127.0.0.1:0", "-admin-addr", "127.0.0.1:0"}, &out); err != nil {
		t.Error(err)
	}
}
