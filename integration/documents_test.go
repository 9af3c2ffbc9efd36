package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// passage is a block of a document: a session of redis-cli, a program or another file that the
// reader saves under a name, or commands of a shell.
type passage struct{ language, file, text string }

// blocksOf returns the blocks of a document. A block is a file if the line before it ends with
// the name of one and a colon.
func blocksOf(text string) []passage {
	var all []passage
	open := regexp.MustCompile("^```([\\w-]*)$")
	named := regexp.MustCompile("`([\\w./-]+)`:$")
	before, inside := "", false // the last line that was not empty, outside of blocks
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		begins := open.FindStringSubmatch(line)
		switch {
		case inside && line == "```":
			inside = false
		case inside:
			all[len(all)-1].text += line + "\n"
		case begins != nil:
			inside = true
			p := passage{language: begins[1]}
			if name := named.FindStringSubmatch(before); name != nil {
				p.file = name[1]
			}
			all, before = append(all, p), ""
		case line != "":
			before = line
		}
	}
	return all
}

// prepared are the blocks of language sh. They install a library or start the broker, which
// the tests do in their own way, so they are compared and not run.
func prepared() []string {
	return []string{
		"make run\n",
		"sudo apt install ./fila_*_amd64.deb redis-tools\n",
		"bin/fila --storage.path ./data\n",
		"sudo apt install python3-redis\n",
		"npm install ioredis\n",
		"go mod init example.org/worker\ngo get github.com/redis/go-redis/v9\n",
		"redis-cli -p 5555\n",
	}
}

// TestTheBlocksOfTheDocumentsRun follows README.md, the tutorials, and the how-to guides that have
// blocks of these languages, each with a broker of its own:
//
//   - redis-cli: a session, whose replies are compared.
//   - console: commands after "$ ", each with what it prints. If that ends with "^C", the command
//     is interrupted once it has printed the rest.
//   - any other language after the name of a file: a file that the commands use.
//
// In a tutorial there are no other blocks. The paths and ports of the documents are replaced by those
// of the test.
func TestTheBlocksOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	tutorials, err := filepath.Glob("../docs/tutorial/*.md")
	if err != nil || len(tutorials) < 5 {
		t.Fatalf("there are the tutorials %q, %v", tutorials, err)
	}
	guides, err := filepath.Glob("../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := slices.Concat([]string{"../README.md"}, tutorials, guides)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := blocksOf(string(text))
		runs := slices.ContainsFunc(blocks, func(b passage) bool { return b.language == "redis-cli" || b.language == "console" })
		tutorial := slices.Contains(tutorials, page)
		if !runs && tutorial {
			t.Errorf("%s: nothing of it runs", page)
		}
		if runs {
			t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
				t.Parallel()
				follow(t, blocks, tutorial)
			})
		}
	}
}

// storePath is where a package keeps the store. A document that names it needs a store on disk.
const storePath = "/var/lib/fila/data"

// follow runs the blocks of one document in their order.
func follow(t *testing.T, blocks []passage, tutorial bool) {
	t.Helper()
	args := []string{"--storage.engine", "memory"}
	if slices.ContainsFunc(blocks, func(b passage) bool { return strings.Contains(b.text, storePath) }) {
		args = nil
	}
	b := kit.Serve(t, args...)
	addr := b.Addr()
	_, port, _ := strings.Cut(addr, ":")
	r := &reader{T: t, dir: moduleDir(t), port: port, ids: map[string]string{}}
	r.outfit()
	local := strings.NewReplacer("5555", port, "127.0.0.1:7000", kit.Reserve(t), storePath, b.Data())
	for _, b := range blocks {
		text := local.Replace(b.text)
		switch {
		case b.language == "redis-cli":
			steps := session(b.text)
			if len(steps) == 0 {
				t.Fatalf("a session without a command:\n%s", b.text)
			}
			play(t, addr, steps, r.ids)
		case b.language == "console":
			for _, c := range typedCommands(text) {
				r.run(c)
			}
		case b.file != "":
			r.needs(b.language)
			if err := os.WriteFile(filepath.Join(r.dir, b.file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case tutorial && (b.language != "sh" || !slices.Contains(prepared(), b.text)):
			t.Errorf("this block is neither run nor prepared:\n%s", b.text)
		}
		if t.Failed() {
			return
		}
	}
}

// reader follows a document.
type reader struct {
	*testing.T
	dir, port string
	ids       map[string]string // id in the document → id received
	env       []string
}

// outfit gives the reader the programs and libraries that the documents say to install.
func (r *reader) outfit() {
	r.Helper()
	bin, err := filepath.Abs(filepath.Join(r.dir, ".bin"))
	if err != nil {
		r.Fatal(err)
	}
	if err := os.Mkdir(bin, 0o700); err != nil {
		r.Fatal(err)
	}
	// Debian's interpreter has Debian's libraries.
	for name, target := range map[string]string{".bin/python3": "/usr/bin/python3", ".bin/fila": kit.Binary(r.T)} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			r.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FILA_URL=fila://127.0.0.1:"+r.port,
		"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -ldflags=-w", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
}

// needs leaves a document out where its library cannot be installed, but not in CI.
func (r *reader) needs(language string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "true")
	switch language {
	case "python":
		cmd = exec.CommandContext(r.Context(), "/usr/bin/python3", "-c", "import redis")
	case "js":
		cmd = exec.CommandContext(r.Context(), "node", "suits.cjs", "ioredis")
		cmd.Dir = filepath.Join("clients", "javascript")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		leftOut(r.T, fmt.Sprintf("make setup-tests installs the library, or says why not (%v)\n%s", err, out))
	}
}

// typedCommands returns the commands of a block of a console, with what they print.
func typedCommands(text string) []step {
	var all []step
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, step{command: command})
		} else if len(all) > 0 {
			all[len(all)-1].reply = append(all[len(all)-1].reply, line)
		}
	}
	return all
}

// output collects what a process prints, for another goroutine.
type output struct {
	sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.Write(p)
}

// lines returns what has been printed so far.
func (o *output) lines() []string {
	o.Lock()
	defer o.Unlock()
	if o.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(o.String(), "\n"), "\n")
}

// ended returns how many lines have been printed to their end.
func (o *output) ended() int {
	o.Lock()
	defer o.Unlock()
	return bytes.Count(o.Bytes(), []byte("\n"))
}

// run runs a command and compares what it prints.
func (r *reader) run(s step) {
	r.Helper()
	heedSignals()
	want, interrupted := s.reply, false
	if n := len(want); n > 0 && want[n-1] == "^C" {
		want, interrupted = want[:n-1], true
	}
	cmd := exec.CommandContext(r.Context(), "bash", "-c", s.command)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var printed output
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if r.Failed() { // what the command has started in the background
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	const processes = 5 // a command may start a hundred, which takes longer than one event
	patience := processes * testkit.Patience()
	deadline := time.Now().Add(patience)
	var err error
	for ended := false; !ended; {
		select {
		case err = <-done:
			ended = true
			continue
		case <-time.After(20 * time.Millisecond):
		}
		late := time.Now().After(deadline)
		if interrupted && printed.ended() >= len(want) || late {
			// To the whole group, as a terminal does.
			if killed := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); killed != nil && !late {
				r.Error(killed)
			}
			interrupted = false
		}
		if late {
			err = fmt.Errorf("it did not end within %v", patience)
			break
		}
	}
	got := printed.lines()
	same := len(got) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = sameLine(want[i], got[i], r.ids)
	}
	if !same {
		r.Errorf("$ %s\nprints (%v):\n%s\nthe document says:\n%s", s.command, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A command that prints something else than the document, or that the document does not print, is
// seen. So are the ends of sessions and files.
func TestTheBlocksOfADocumentAreFound(t *testing.T) {
	got := blocksOf("Save this as `a.py`:\n\n```python\nprint(1)\n```\n\n```console\n$ python3 a.py\n1\n$ true\n```\n")
	want := []passage{{language: "python", file: "a.py", text: "print(1)\n"}, {language: "console", text: "$ python3 a.py\n1\n$ true\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("blocks are %q", got)
	}
	commands := typedCommands(want[1].text)
	if len(commands) != 2 || commands[0].command != "python3 a.py" || !slices.Equal(commands[0].reply, []string{"1"}) || commands[1].reply != nil {
		t.Errorf("commands are %q", commands)
	}
}

// A command is interrupted after the last line of the document, not within it: a program may print a
// line piece by piece.
func TestACommandIsInterruptedBetweenLines(t *testing.T) {
	t.Parallel()
	r := &reader{T: t, dir: t.TempDir(), env: os.Environ()}
	r.run(step{command: "echo one; printf 'two '; sleep 0.5; echo three; sleep 60", reply: []string{"one", "two three", "^C"}})
}
