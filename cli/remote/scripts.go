package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/client"
)

// trialOptions describe the message with which a hook is tried.
func trialOptions() []option {
	return []option{
		{"source", "", text, "try this `file` in place of what is loaded"},
		{"key", "KEY", text, "the fairness `key` of the message"},
		{"weight", "WEIGHT", number, "the `weight` that the client asks for"},
		{"throttle", "THROTTLE", texts, "a `throttle` that the client names; may be repeated"},
		{"budget", "BUDGET", texts, "a `budget` that the client names; may be repeated"},
		{"charge", "CHARGE", number, "the `credits` that the client names"},
		{"max-attempts", "MAXATTEMPTS", number, "the `attempts` that the client names"},
		{"backoff", "BACKOFF", millis, "the first delay of a retry that the client names, a `duration`"},
		{"max-backoff", "MAXBACKOFF", millis, "the longest one, a `duration`"},
		{"header", "HEADER", pairs, "a header, `name=value`; may be repeated"},
		{"payload-size", "PAYLOADSIZE", number, "the `bytes` of the payload"},
		{"attempt", "ATTEMPT", number, "the failed `attempts`, for on_failure"},
		{"error", "ERROR", text, "the `error` of the worker, for on_failure"},
		{"samples", "", text, "try each sample of this `file`, and compare what is decided"},
	}
}

func scriptRows() []row {
	return []row{
		{
			name: "scripts list", args: "[QUEUE]", short: "List the hooks of queues with how they fare",
			run: (*call).listScripts, columns: "queue hook state calls errors recalled?? p50_us?? p99_us? last_error? version??", none: "no scripts",
			examples: []string{"fila scripts list", "fila scripts list orders -o json"},
		},
		{
			name: "scripts show", args: "QUEUE HOOK", short: "Show the source of a hook",
			wire: "FILA.SCRIPT GET", shape: raw, missing: "$QUEUE has no $HOOK",
			examples: []string{"fila scripts show orders on_enqueue", "fila scripts show orders on_enqueue > orders.on_enqueue.lua"},
		},
		{
			name: "scripts push", args: "PATH...", short: "Load hooks from files that are named QUEUE.HOOK.lua",
			long: `Each PATH is such a file, as in orders.on_enqueue.lua, or a directory with some. All are
tried before the first is loaded. Characters that a file's name cannot have are
written as %XX.`,
			run: (*call).push, columns: "queue hook version",
			examples: []string{"fila scripts push hooks", "fila scripts push hooks/orders.on_enqueue.lua -o json"},
		},
		{
			name: "scripts test", args: "QUEUE HOOK", short: "Run a hook with a message made of options, or with samples; nothing changes",
			long: `With --samples, FILE has a JSON object on each line:

  {"name": "gold", "headers": {"tier": "gold"}, "expect": {"weight": 5}}

Fields are key, weight, throttles, budgets, charge, max_attempts, backoff_ms,
max_backoff_ms, headers, payload_size, attempt and error, of which all may be missing. Those of expect are compared with what the hook
decides. The exit code is 1 if one differs.`,
			wire: "FILA.SCRIPT TEST", run: (*call).testScript, shape: fields, columns: "sample result",
			options:  trialOptions(),
			examples: []string{"fila scripts test orders on_enqueue --source hooks/orders.on_enqueue.lua --header tier=gold", "fila scripts test orders on_enqueue --source hooks/orders.on_enqueue.lua --samples hooks/orders.on_enqueue.samples"},
		},
		{
			name: "scripts watch", args: "DIR", short: "Try the hooks of a directory at every save",
			long: `Looks at the files QUEUE.HOOK.lua of DIR until it is interrupted, and tries each that was
saved. A file QUEUE.HOOK.samples beside it has samples for it, as fila scripts test
--samples takes them. With --push a hook that passes is loaded.`,
			run:      (*call).watch,
			options:  []option{{"push", "", yes, "load what passes"}},
			examples: []string{"fila scripts watch hooks", "fila scripts watch hooks --push"},
		},
		{
			name: "scripts history", args: "QUEUE HOOK", short: "List the last sources of a hook, the newest first",
			wire: "FILA.SCRIPT HISTORY", shape: list, columns: "version loaded_at user current bytes", missing: "$QUEUE never had $HOOK",
			examples: []string{"fila scripts history orders on_enqueue", "fila scripts history orders on_enqueue -o json"},
		},
		{
			name: "scripts rollback", args: "QUEUE HOOK VERSION", short: "Load a source of the history of a hook again",
			wire: "FILA.SCRIPT ROLLBACK", done: "loaded $VERSION as $HOOK of $QUEUE", missing: "the history of $HOOK of $QUEUE has no version $VERSION", run: (*call).rollback,
			examples: []string{"fila scripts rollback orders on_enqueue 58d5e1f0c2a4b6987d3c1e5f7a9b0c2d4e6f8a10", "fila scripts rollback orders on_enqueue \"$(fila scripts history orders on_enqueue | sed -n 1p | cut -f 1)\""},
		},
		{
			name: "scripts delete", args: "QUEUE HOOK", short: "Remove a hook from a queue",
			wire: "FILA.SCRIPT DEL", shape: count, done: "removed $HOOK of $QUEUE", missing: "$QUEUE has no $HOOK",
			ask:      "Remove $HOOK of $QUEUE?",
			examples: []string{"fila scripts delete orders on_enqueue --yes", "fila scripts delete orders on_enqueue -y -o json"},
		},
	}
}

// listScripts shows the statistics of the hooks of a queue, or of all queues.
func (c *call) listScripts() error {
	reply, err := c.do(append([]string{"FILA.SCRIPT", "LIST"}, c.args["QUEUE"]...)...)
	if err != nil {
		return err
	}
	var queues []string
	for _, m := range client.Maps(reply) {
		if name := m.Text("queue"); !slices.Contains(queues, name) {
			queues = append(queues, name)
		}
	}
	rows := c.rows()
	err = c.each(queues, func(name string) []string { return []string{"FILA.SCRIPT", "STATS", name} }, func(_ string, v any) error {
		for _, m := range client.Maps(v) {
			rows.Add(m)
		}
		return nil
	})
	rows.Close(c.none)
	return err
}

// hookFile is a file with the source of a hook.
type hookFile struct{ path, queue, hook, source string }

const (
	scriptEnd  = ".lua"
	samplesEnd = ".samples"
)

// hookName takes queue and hook from the name of a file.
func hookName(path string) (queue, hook string, err error) {
	stem, ok := strings.CutSuffix(filepath.Base(path), scriptEnd)
	dot := strings.LastIndexByte(stem, '.')
	if ok && dot > 0 {
		hook = stem[dot+1:]
		queue, err = url.PathUnescape(stem[:dot])
	}
	if err != nil || hook != "on_enqueue" && hook != "on_failure" {
		return "", "", fmt.Errorf("%s: a hook's file is named QUEUE.on_enqueue.lua or QUEUE.on_failure.lua", path)
	}
	return queue, hook, nil
}

// hookFileName is the name of the file of a hook.
func hookFileName(queue, hook string) string { return url.PathEscape(queue) + "." + hook + scriptEnd }

// hookFiles reads files, and those of directories.
func hookFiles(paths []string) ([]hookFile, error) {
	var all []hookFile
	for _, path := range paths {
		files := []string{path}
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(escapePattern(path), "*"+scriptEnd)); err == nil && len(files) == 0 {
				err = fmt.Errorf("%s has no files that are named QUEUE.HOOK.lua", path)
			}
		}
		if err != nil {
			return nil, UsageError{err}
		}
		for _, file := range files {
			f, err := readHook(file)
			if err != nil {
				return nil, UsageError{err}
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func readHook(path string) (hookFile, error) {
	queue, hook, err := hookName(path)
	if err != nil {
		return hookFile{}, err
	}
	source, err := os.ReadFile(path) //nolint:gosec // it is the file that was named
	if err == nil && len(source) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return hookFile{path, queue, hook, string(source)}, err
}

// push tries all hooks, and loads them if none fails.
func (c *call) push() error {
	files, err := hookFiles(c.args["PATH"])
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := c.try(f); err != nil {
			return fmt.Errorf("%s: %w; none was loaded", f.path, err)
		}
	}
	rows := c.rows()
	for _, f := range files {
		version, err := c.do("FILA.SCRIPT", "LOAD", f.queue, f.hook, f.source)
		if err != nil {
			rows.Close("")
			return fmt.Errorf("%s: %w", f.path, err)
		}
		rows.Add(client.Map{{Name: "queue", Value: f.queue}, {Name: "hook", Value: f.hook}, {Name: "version", Value: version}})
	}
	rows.Close("")
	return nil
}

// try runs a hook once, with a message that has nothing, and its samples if there is a file with
// some beside it. A script that fails for such a message is not refused: it may need headers.
func (c *call) try(f hookFile) error {
	_, err := c.do("FILA.SCRIPT", "TEST", f.queue, f.hook, "SOURCE", f.source)
	if failed := client.Refused(err, "LUA") && !strings.Contains(err.Error(), "does not load"); err != nil && !failed {
		return err
	}
	file := strings.TrimSuffix(f.path, scriptEnd) + samplesEnd
	samples, err := readSamples(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range samples {
		differs, err := c.trySample(f, s)
		if err == nil && differs != "" {
			err = errors.New(differs)
		}
		if err != nil {
			return fmt.Errorf("sample %s: %w", s.Name, err)
		}
	}
	return nil
}

// rollback loads a source of the history. Its refusal does not say whether there is that version.
func (c *call) rollback() error {
	err := c.sendRow()
	if !client.Refused(err, "INVALID") {
		return err
	}
	reply, asked := c.do("FILA.SCRIPT", "HISTORY", c.arg("QUEUE"), c.arg("HOOK"))
	if asked != nil || slices.ContainsFunc(client.Maps(reply), func(v client.Map) bool { return strings.HasPrefix(v.Text("version"), c.arg("VERSION")) }) {
		return err
	}
	return MissingError{c.filled(c.missing)}
}
