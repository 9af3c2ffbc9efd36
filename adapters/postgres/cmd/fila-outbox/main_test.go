package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

func TestSettingsThatAreNotValid(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-url", "http://u:s3cret@x"}, "URL of the broker"},
		{[]string{"-database-url", "postgres://u:s3cret@h:port/x"}, "URL of the database"},
		{[]string{"-workers", "0"}, ""}, // the default
		{[]string{"-workers", "100"}, "1 to 64"},
		{[]string{"-poll", "soon"}, "poll"},
		{[]string{"-admin-addr", "nowhere"}, "admin-addr"},
		{[]string{"more"}, "unknown command"},
		{[]string{"sql", "more"}, "unknown argument"},
		{[]string{"setup", "-database-url", "postgres://u:s3cret@127.0.0.1:1/x"}, "database"},
	} {
		var out, log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		if c.want == "" {
			cancel()
		}
		err := run(ctx, c.args, &out, &log)
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
		if err != nil && strings.Contains(err.Error()+log.String(), "s3cret") {
			t.Errorf("%v shows the password: %v", c.args, err)
		}
	}
}

func TestTheEnvironmentSetsAndFlagsComeFirst(t *testing.T) {
	t.Setenv("FILA_URL", "redis://elsewhere:1")
	t.Setenv("FILA_OUTBOX_DATABASE_URL", "postgres://elsewhere/x")
	t.Setenv("FILA_OUTBOX_POLL", "50ms")
	t.Setenv("FILA_OUTBOX_SETUP", "true")
	var out, log bytes.Buffer
	s, err := parse([]string{"-poll", "20ms"}, &log)
	if err != nil || s.broker != "redis://elsewhere:1" || s.db != "postgres://elsewhere/x" || s.poll != 20*time.Millisecond || !s.setup {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse([]string{"-help"}, &log); err == nil || !strings.Contains(log.String(), "FILA_OUTBOX_ADMIN_ADDR") || strings.Contains(log.String(), "elsewhere/x") {
		t.Errorf("%v: %s", err, &log)
	}
	t.Setenv("FILA_OUTBOX_POLL", "soon")
	if _, err := parse(nil, &log); err == nil || !strings.Contains(err.Error(), "FILA_OUTBOX_POLL") {
		t.Error(err)
	}
	t.Setenv("FILA_OUTBOX_POLL", "1s")
	if err := run(t.Context(), []string{"sql"}, &out, &log); err != nil || !strings.Contains(out.String(), "CREATE OR REPLACE TRIGGER") {
		t.Errorf("%v: %s", err, &out)
	}
}
