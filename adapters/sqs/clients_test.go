package sqs

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The programs of the folder tests use the gateway through libraries of other people: each folder is one of them. They run
// against processes of the gateway with access keys.

// gatewayBinary builds the gateway once, in a folder that TestMain makes.
var gatewayBinary = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // it is built once
	file := filepath.Join(built, "fila-sqs")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", file, "./cmd/fila-sqs").CombinedOutput()
	if err != nil {
		_, _ = os.Stderr.Write(out)
	}
	return file, err
})

// process starts a process of the gateway, with a file of access keys unless that is empty, and returns its URL and its id. It
// ends with the test.
func process(t testing.TB, broker, keys string) (url string, pid int, kill func()) {
	t.Helper()
	file, err := gatewayBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), file, "-url", "redis://"+broker, "-listen-addr", "127.0.0.1:0", "-keys-file", keys)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, addr, ready := strings.Cut(lines.Text(), "ready on "); ready {
			go func() {
				for lines.Scan() {
					t.Log(lines.Text())
				}
			}()
			return "http://" + addr, cmd.Process.Pid, kill
		}
		t.Log(lines.Text())
	}
	t.Fatal("the gateway has ended before it was ready")
	return "", 0, nil
}

// program is how the tests of a folder are run, at length or as a short check.
type program struct {
	command   []string
	all, some []string
	suits     []string // tells that what it needs is there; else needs says it
	needs     string
}

func programs() map[string]program {
	return map[string]program{
		"python": {
			command: []string{"/usr/bin/python3", "-m", "unittest"}, // Debian's, which has Debian's libraries
			all:     []string{"test_boto3"},
			some:    []string{"test_boto3.TestBoto3.test_a_queue_from_its_creation_to_its_end"},
		},
		"celery": {
			command: []string{"/usr/bin/python3", "-m", "unittest"},
			all:     []string{"test_celery"},
			some:    []string{"test_celery.TestCelery.test_tasks_are_done"},
			suits:   []string{"/usr/bin/python3", "-c", "import celery; exit(celery.VERSION < (5, 2))"},
			needs:   "Celery 5.2",
		},
		"node": {
			command: []string{"node", "--test"},
			all:     []string{"sqs.test.js"},
			some:    []string{"--test-name-pattern=creates, uses and deletes|handles messages and deletes", "sqs.test.js"},
			suits:   []string{"node", "-e", "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)"},
			needs:   "Node.js 20",
		},
		"gocloud": {
			command: []string{"go", "test", "-count=1"},
			all:     []string{"."},
			some:    []string{"-run", "TestConformance/(TestSendReceive|TestBatching|TestDoubleAck)$", "."},
		},
	}
}

func TestClients(t *testing.T) {
	keys := keyed(t)
	url, _, _ := process(t, shared.Load().addr, keys)
	other, _, _ := process(t, shared.Load().addr, keys)
	for folder, p := range programs() {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			if len(p.suits) > 0 && exec.CommandContext(t.Context(), p.suits[0], p.suits[1:]...).Run() != nil {
				t.Skipf("left out: it needs %s", p.needs)
			}
			args := slices.Concat(p.command[1:], p.all)
			if testing.Short() {
				args = slices.Concat(p.command[1:], p.some)
			}
			cmd := exec.CommandContext(t.Context(), p.command[0], args...)
			cmd.Dir = filepath.Join("tests", folder)
			cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL_SQS="+url, "OTHER_ENDPOINT_URL="+other,
				"AWS_ACCESS_KEY_ID=AKIA1", "AWS_SECRET_ACCESS_KEY=s1", "AWS_REGION=eu-central-1", "AWS_DEFAULT_REGION=eu-central-1",
				"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}
