package integration_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// fromRegistry are the blocks of language sh that install a published package. They cannot be run before it is published,
// so they are compared. The block after each installs the same from a file, and is run.
func fromRegistry() map[string]string {
	return map[string]string{
		"python":    "pip install fila-worker\n",
		"celery":    "pip install celery-fila\n",
		"node":      "npm install fila-worker ioredis\n",
		"nestjs":    "npm install fila-nestjs ioredis\n",
		"activejob": "gem install fila-activejob\n",
		"symfony":   "composer require fila/messenger\n",
		"go":        "go get github.com/faisca/fila/adapters/go@latest\n",
		"watermill": "go get github.com/faisca/fila/adapters/watermill@latest\n",
		"gocloud":   "go get github.com/faisca/fila/adapters/gocloud@latest\n",
		"postgres":  "go install github.com/faisca/fila/adapters/postgres/cmd/fila-outbox@latest\n",
		"sqs":       "go install github.com/faisca/fila/adapters/sqs/cmd/fila-sqs@latest\n",
	}
}

// TestTheReadmesOfTheAdapters builds the packages of the adapters, and follows the README of each in an empty folder, where
// the package is installed from its file. Every block is run, with a broker of its own:
//
//   - sh: commands, which have to succeed. One that ends with "&" runs until the end, and then has to end by SIGTERM.
//   - console and redis-cli: as in other documents, the output is compared.
//   - any other language after the name of a file: a file that the commands use.
//
// Libraries that a package needs are those of the system, where the system has a registry's: Debian's Python, Ruby and PHP.
// Those of Node.js and Go are fetched.
func TestTheReadmesOfTheAdapters(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	readmes, err := filepath.Glob("../adapters/*/README.md")
	if err != nil || len(readmes) < len(fromRegistry()) {
		t.Fatalf("there are the pages %q, %v", readmes, err)
	}
	w := newWorkshop(t)
	for _, page := range readmes {
		name := filepath.Base(filepath.Dir(page))
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { w.follow(t, name, blocksOf(string(text))) })
	}
}

// workshop is a machine with the tools that developers have, and the packages of the adapters.
type workshop struct {
	home string // with a checkout of Fila in fila, as the documents say
	env  []string
}

// output of a command, which has to succeed.
func outputOf(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{home: t.TempDir()}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "-C", "../tools/packages", "run", ".", "-o", filepath.Join(w.home, "fila", "dist", "adapters"), root)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Run(); err != nil {
		build.Env = append(build.Env, "SOURCE_DATE_EPOCH=1764425870") // sources without git
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cache := outputOf(t, "go", "env", "GOMODCACHE")
	// A module of Fila has the version of its commit, whatever has changed since: it is not to be kept.
	own := t.TempDir()
	t.Cleanup(func() {
		clean := exec.Command("go", "clean", "-modcache")
		clean.Env = append(os.Environ(), "GOMODCACHE="+own)
		if out, err := clean.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	user, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(),
		"HOME="+w.home, "CGO_ENABLED=0", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
		"GOMODCACHE="+own, "GOCACHE="+outputOf(t, "go", "env", "GOCACHE"), "GOPATH="+filepath.Join(w.home, "go"),
		"GOFLAGS=-buildvcs=false -trimpath -ldflags=-w", // what is compiled is cached, wherever it is
		"GOPROXY=file://"+filepath.Join(cache, "cache", "download")+","+outputOf(t, "go", "env", "GOPROXY"), "GONOSUMDB=",
		// Debian's interpreter has Debian's libraries, also in an environment of venv.
		"PIP_NO_INDEX=1", "PYTHONPATH=/usr/lib/python3/dist-packages:"+timeZones(t), "MYPY_CACHE_DIR="+t.TempDir(),
		"NODE_NO_WARNINGS=1", // of libraries that will need a newer Node.js
		"npm_config_cache="+outputOf(t, "npm", "config", "get", "cache"), "npm_config_userconfig="+filepath.Join(user, ".npmrc"),
		"npm_config_prefer_offline=true", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
		"GEM_HOME="+filepath.Join(w.home, "gems"), "BUNDLE_SILENCE_ROOT_WARNING=1",
		"RUBYOPT=-W0", // Debian's Ruby has some gems twice, of which RubyGems warns
		"COMPOSER_HOME="+composerHome(t), "COMPOSER_ALLOW_SUPERUSER=1", "COMPOSER_NO_INTERACTION=1", "COMPOSER_CACHE_DIR="+t.TempDir(),
	)
	return w
}

// timeZones returns a folder in which pip finds tzdata. Celery of Debian 13 requires that package of Python, in whose place
// Debian has one of the system.
func timeZones(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	info := filepath.Join(dir, "tzdata-9999.0.dist-info")
	if err := os.Mkdir(info, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: tzdata\nVersion: 9999.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// composerHome has Composer find the packages of Debian, as if Packagist had them.
func composerHome(t *testing.T) string {
	t.Helper()
	type pkg struct {
		Name     string              `json:"name"`
		Version  string              `json:"version"`
		Dist     map[string]string   `json:"dist"`
		Autoload map[string][]string `json:"autoload"`
	}
	version := outputOf(t, "dpkg-query", "--show", "--showformat=${Version}", "php-symfony-messenger")
	version, _, _ = strings.Cut(version, "+")
	version, _, _ = strings.Cut(version, "-")
	repositories := []any{map[string]bool{"packagist.org": false}}
	for _, name := range []string{"component/messenger", "component/console", "component/serializer", "component/property-access", "component/yaml", "bundle/framework-bundle"} {
		folder, component, _ := strings.Cut(name, "/")
		var camel string
		for part := range strings.SplitSeq(component, "-") {
			camel += strings.ToUpper(part[:1]) + part[1:]
		}
		dir := "/usr/share/php/Symfony/" + strings.ToUpper(folder[:1]) + folder[1:] + "/" + camel
		repositories = append(repositories, map[string]any{"type": "package", "package": pkg{
			"symfony/" + component, version, map[string]string{"type": "path", "url": dir}, map[string][]string{"files": {"autoload.php"}},
		}})
	}
	text, err := json.Marshal(map[string]any{"repositories": repositories})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// follow runs the blocks of a README in an empty folder.
func (w *workshop) follow(t *testing.T, name string, blocks []passage) {
	t.Helper()
	b := kit.Serve(t, "--storage.engine", "memory")
	addr := b.Addr()
	_, port, _ := strings.Cut(addr, ":")
	dir := t.TempDir()
	tools := filepath.Join(w.home, "tools")
	if err := os.MkdirAll(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/python3", filepath.Join(tools, "python3")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	r := &reader{T: t, dir: dir, port: port, ids: map[string]string{}, env: append(slices.Clone(w.env),
		"FILA_URL=fila://"+addr, "PATH="+strings.Join([]string{tools, filepath.Join(w.home, "gems", "bin"), filepath.Join(w.home, "go", "bin"), os.Getenv("PATH")}, ":"))}
	gateway := kit.Reserve(t)
	r.env = append(r.env, "FILA_SQS_LISTEN_ADDR="+gateway)
	local := strings.NewReplacer("5555", port, "127.0.0.1:9324", gateway)
	if name == "postgres" {
		r.env = append(r.env, serveDatabase(t)...)
	}
	published := false
	for _, b := range blocks {
		text := local.Replace(b.text)
		switch {
		case b.text == fromRegistry()[name]:
			published = true
		case b.language == "redis-cli":
			play(t, addr, session(b.text), r.ids)
		case b.language == "console":
			for _, c := range typedCommands(text) {
				r.run(c)
			}
		case b.language == "sh":
			r.succeed(text)
		case b.file != "":
			file := filepath.Join(dir, filepath.FromSlash(b.file))
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("this block is not run: it is no file, since no line that ends with a name and a colon is before it\n%s", b.text)
		}
		if t.Failed() {
			return
		}
	}
	if want := fromRegistry()[name]; want == "" || !published {
		t.Errorf("it does not say how to install what is published: %q", want)
	}
}

// serveDatabase starts an empty PostgreSQL, and returns the variables that name it. It does not serve root.
func serveDatabase(t *testing.T) []string {
	t.Helper()
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bins) == 0 {
		t.Fatalf("there is no PostgreSQL: make setup-tests installs it (%v)", err)
	}
	dir, err := os.MkdirTemp("", "db") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		as.Credential = &syscall.Credential{Uid: uint32(uid)}
		if err := os.Chown(dir, int(uid), -1); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bins[len(bins)-1], name), args...)
		cmd.SysProcAttr, cmd.Dir = as, dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	for _, cmd := range []*exec.Cmd{
		tool("initdb", "-D", data, "-U", "app", "-A", "trust", "--no-sync"),
		tool("pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", "-c listen_addresses= -c fsync=off -k "+dir, "start"),
	} {
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
	}
	t.Cleanup(func() {
		if err := tool("pg_ctl", "-D", data, "-m", "immediate", "stop").Run(); err != nil {
			t.Error(err)
		}
	})
	return []string{"PGHOST=" + dir, "PGUSER=app", "PGDATABASE=postgres"}
}

// succeed runs commands of a shell, each of which has to succeed. Those that end with "&" go on.
func (r *reader) succeed(text string) {
	r.Helper()
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if command, ok := strings.CutSuffix(line, " &"); ok {
			r.background(command)
			continue
		}
		cmd := exec.CommandContext(r.Context(), "bash", "-c", line)
		cmd.Dir, cmd.Env = r.dir, r.env
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("$ %s\n%v\n%s", line, err, out)
		}
	}
}

// background starts a program that has to end by SIGTERM when the README is done.
func (r *reader) background(command string) {
	r.Helper()
	heedSignals()
	cmd := exec.CommandContext(context.WithoutCancel(r.Context()), "bash", "-c", "exec env "+command)
	cmd.Dir, cmd.Env = r.dir, r.env
	var printed output
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		// NestJS stops in order, and then has the signal end it.
		if err := cmd.Wait(); err != nil && err.Error() != "signal: terminated" {
			r.Errorf("$ %s &\n%v", command, err)
		}
		if r.Failed() {
			r.Logf("$ %s &\n%s", command, strings.Join(printed.lines(), "\n"))
		}
	})
}
