package outbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// blocks returns the blocks of code of the guide in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, rest := range strings.Split(string(page), "\n```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(rest, "\n```")
		all = append(all, code+"\n")
	}
	if len(all) == 0 {
		t.Fatalf("the guide has nothing in %s", language)
	}
	return all
}

// inGo is the example of the guide.
func inGo(ctx context.Context, db *pgx.Conn) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, customer) VALUES ($1, $2)", 17, "acme"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT fila_enqueue($1, $2::text, key => $3)", "orders", `{"order": 17}`, "acme")
		return err
	})
	return err
}

// TestTheExamplesOfTheGuideEnqueueInTheirTransaction runs each of them twice: the first enqueues, and the second violates
// the key of another table, so that nothing is enqueued.
func TestTheExamplesOfTheGuideEnqueueInTheirTransaction(t *testing.T) {
	source, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if code := "\t" + strings.ReplaceAll(strings.TrimSuffix(blocks(t, "go")[0], "\n"), "\n", "\n\t"); !strings.Contains(string(source), code) {
		t.Errorf("inGo is not the example of the guide:\n%s", code)
	}
	modules, err := filepath.Abs("../node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		language, program, option, before, after string
	}{
		{"python", "/usr/bin/python3", "-c", "import os, psycopg2\nconnection = psycopg2.connect(os.environ['DATABASE'])\n", ""},
		{
			"js", "node", "-e", "const client = new (require('pg').Client)(process.env.DATABASE); (async () => { await client.connect()\n",
			"})().then(() => client.end(), e => { console.error(e.message); process.exit(1) })",
		},
		{"ruby", "ruby", "-e", "require 'pg'\nconnection = PG.connect(ENV['DATABASE'])\n", ""},
		{"php", "php", "-r", "$pdo = new PDO(getenv('PDO'));\n", ""},
		{"go", "", "", "", ""},
	} {
		t.Run(x.language, func(t *testing.T) {
			if testing.Short() && x.language != "python" && x.language != "go" {
				t.Skip("at length")
			}
			if x.program == "node" {
				version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
				if err != nil {
					t.Fatal(err)
				}
				if major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), "."); len(major) < 2 || major < "18" {
					t.Skip("make setup-tests says that Node.js is too old")
				}
			}
			url := sharedDB.fresh(t)
			db := connect(t, url)
			exec1(t, url, "CREATE TABLE orders (id int PRIMARY KEY, customer text)")
			run := func() error { return inGo(t.Context(), db) }
			if x.program != "" {
				run = func() error {
					cmd := exec.CommandContext(t.Context(), x.program, x.option, x.before+blocks(t, x.language)[0]+x.after)
					name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
					cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "DATABASE="+url, fmt.Sprintf("PDO=pgsql:host=127.0.0.1;port=%d;dbname=%s;user=postgres", sharedDB.port, name))
					out, err := cmd.CombinedOutput()
					if err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					return nil
				}
			}
			if err := run(); err != nil {
				t.Fatal(err)
			}
			if err := run(); err == nil || !strings.Contains(err.Error(), "orders_pkey") {
				t.Errorf("the second time: %v", err)
			}
			if n := number(t, db, `SELECT count(*) FROM fila_outbox WHERE queue = 'orders' AND key = 'acme' AND payload = '{"order": 17}'`); n != 1 || number(t, db, waitingRows) != 1 {
				t.Errorf("%d messages", n)
			}
		})
	}
}

// TestTheStatementsOfTheGuideAreValid executes them, and a relay moves rows as the role that has the rights of the guide.
func TestTheStatementsOfTheGuideAreValid(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	db := connect(t, url)
	exec1(t, url, "CREATE TABLE accounts AS SELECT 4711 AS id")
	exec1(t, url, "CREATE ROLE app LOGIN")
	exec1(t, url, "CREATE ROLE relay LOGIN")
	for _, sql := range blocks(t, "sql") {
		if _, err := db.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Errorf("%s\n%v", sql, err)
		}
	}
	n := number(t, db, waitingRows)
	exec1(t, strings.Replace(url, "postgres@", "app@", 1), "SELECT fila_enqueue('balances', 'x')")
	for _, name := range []string{"orders", "balances"} {
		if err := client.Do(t.Context(), "FILA.QUEUE", "CREATE", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	relaying(t, Config{Database: strings.Replace(url, "postgres@", "relay@", 1)}, nil)
	until(t, "all rows are moved", func() bool { return number(t, db, "SELECT count(*) FROM fila_outbox") == 0 })
	if got := depth(t, client, "orders") + depth(t, client, "balances"); got != n+1 {
		t.Errorf("%d messages, want %d", got, n+1)
	}
}

func TestARowThatIsDeletedIsNotEnqueued(t *testing.T) {
	client, url := sharedBroker.client(t), sharedDB.fresh(t)
	q, db := queue(t, client), connect(t, url)
	remove := func(ctx context.Context, db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}, payload string) (n int64, err error) {
		err = db.QueryRow(ctx, "WITH gone AS (DELETE FROM fila_outbox WHERE payload = $1 RETURNING id) SELECT count(*) FROM gone", []byte(payload)).Scan(&n)
		return n, err
	}
	enqueue(t, db, q, "first", "k")
	enqueue(t, db, q, "second", "k")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := remove(t.Context(), tx, "first"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var once sync.Once
	var deleted int64
	var all sync.WaitGroup
	other := connect(t, url)
	relaying(t, Config{Database: url, Poll: 20 * time.Millisecond}, func(_ *Relay, step string) {
		if step == "read" { // the relay has locked the second
			once.Do(func() {
				all.Go(func() {
					var err error
					if deleted, err = remove(context.Background(), other, "second"); err != nil {
						t.Error(err)
					}
				})
				observer := connect(t, url)
				until(t, "the deletion waits", func() bool {
					return number(t, observer, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'WITH gone%'") == 1
				})
			})
		}
	})
	until(t, "the second is enqueued", func() bool { return depth(t, client, q) == 1 })
	all.Wait()
	if deleted != 0 {
		t.Error("a row was deleted that is enqueued")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	enqueue(t, db, q, "third", "k")
	until(t, "the third is enqueued", func() bool { return number(t, db, waitingRows) == 0 })
	if got := fmt.Sprint(lease(t, client, q)["k"]); got != "[second third]" {
		t.Errorf("%s", got)
	}
}
