// Fila-outbox moves messages from a table of PostgreSQL to queues of a Fila broker. fila-outbox --help describes its
// settings.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	outbox "github.com/faisca/fila/adapters/postgres"
)

//nolint:gosec // an example, not a password
const usage = `fila-outbox moves messages from a table of PostgreSQL to queues of a Fila broker.

  fila-outbox setup       makes the tables and the function fila_enqueue; it may be repeated
  fila-outbox sql         prints the statements that setup applies
  fila-outbox             moves rows, until SIGTERM

  export FILA_OUTBOX_DATABASE_URL=postgres://app:password@db/app FILA_URL=fila://fila:5555
  fila-outbox setup && fila-outbox

A program enqueues in its own transaction: SELECT fila_enqueue('orders', '{"order": 17}', key => 'acme'). Several may run
for one table. Each setting is a flag, or a variable of the environment, which other users of this machine do not see.

`

// settings are what the environment and the flags say.
type settings struct {
	command           string
	broker, db, admin string
	workers, batch    int
	poll              time.Duration
	setup             bool
}

func main() {
	os.Exit(start(os.Args[1:], os.Stdout, os.Stderr)) //nolint:forbidigo // the end of the process
}

// start carries out a command until a signal ends it, and returns the exit code.
func start(args []string, out, log io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, args, out, log); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(log, "fila-outbox:", err)
		return 1
	}
	return 0
}

// parse returns the settings of the environment and the flags, which come first.
func parse(args []string, log io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("fila-outbox", flag.ContinueOnError)
	f.SetOutput(log)
	f.StringVar(&s.broker, "url", "fila://127.0.0.1:5555", "`URL` of the broker: fila://[user:password@]host:port, filas:// with TLS (redis:// and rediss:// are the same); further nodes of a cluster with ?addr=host:port")
	f.StringVar(&s.db, "database-url", "", "`URL` of PostgreSQL: postgres://user:password@host:port/database?sslmode=verify-full; what it leaves out is taken from PGHOST and the like")
	f.StringVar(&s.admin, "admin-addr", "", "`address` of /healthz, /readyz and /metrics; empty: none")
	f.IntVar(&s.workers, "workers", 4, "`number` of batches at a time, 1 to 64, each with a connection to both sides")
	f.IntVar(&s.batch, "batch", 1000, "`number` of rows of a batch at most, 1 to 10000")
	f.DurationVar(&s.poll, "poll", time.Second, "`duration` after which it looks for rows without a notification")
	f.BoolVar(&s.setup, "setup", false, "makes the tables before it moves rows")
	f.Usage = func() { fmt.Fprint(log, usage); f.PrintDefaults() }
	var wrong error
	f.VisitAll(func(x *flag.Flag) {
		variable := "FILA_OUTBOX_" + strings.ToUpper(strings.ReplaceAll(x.Name, "-", "_"))
		if x.Name == "url" {
			variable = "FILA_URL"
		}
		x.Usage += " (" + variable + ")"
		if value, is := os.LookupEnv(variable); is {
			if err := f.Set(x.Name, value); err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("%s: %w", variable, err))
			}
		}
	})
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		s.command, args = args[0], args[1:]
	}
	if err := errors.Join(f.Parse(args), wrong); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q, see --help", f.Arg(0))
	case s.command != "" && s.command != "run" && s.command != "setup" && s.command != "sql":
		return nil, fmt.Errorf("unknown command %q: it is setup, sql, or none to move rows", s.command)
	}
	return s, nil
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	s, err := parse(args, log)
	if err != nil {
		return err
	}
	switch s.command {
	case "sql":
		fmt.Fprint(out, outbox.SQL())
		return nil
	case "setup":
		return setup(ctx, s)
	}
	if s.setup {
		if err := setup(ctx, s); err != nil {
			return err
		}
	}
	return relay(ctx, s, log)
}

// setup makes the tables.
func setup(ctx context.Context, s *settings) error {
	db, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	return outbox.Setup(ctx, db)
}

// relay moves rows until ctx ends.
func relay(ctx context.Context, s *settings, log io.Writer) error {
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(log, "fila-outbox:", line)
	}
	registry := prometheus.NewRegistry()
	r, err := outbox.New(outbox.Config{Broker: s.broker, Database: s.db, Workers: s.workers, Batch: s.batch, Poll: s.poll, Registry: registry, Log: say})
	if err != nil {
		return err
	}
	defer r.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	if s.admin != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.admin)
		if err != nil {
			return fmt.Errorf("admin-addr: %w", err)
		}
		server := &http.Server{Handler: admin(r, registry), ReadHeaderTimeout: 10 * time.Second}
		defer server.Close()
		go func() {
			ended <- server.Serve(l)
			stop()
		}()
		say("metrics and health on " + l.Addr().String())
	}
	say("moving rows, " + strconv.Itoa(s.workers) + " batches at a time")
	r.Run(running)
	if ctx.Err() == nil {
		return <-ended
	}
	say("stopped")
	return nil
}

// admin serves what operators and orchestrators ask.
func admin(r *outbox.Relay, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), 5*time.Second)
		defer cancel()
		if err := r.Ready(ctx); err != nil {
			http.Error(w, "the database or the broker does not answer, the log says why", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
