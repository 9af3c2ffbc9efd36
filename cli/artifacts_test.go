package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCompletionsAreThereForEachShell(t *testing.T) {
	for _, shell := range shellNames() {
		code, stdout, stderr := run(t, never(t), "completion", shell)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "fila") || !strings.Contains(stdout, shell) {
			t.Errorf("%s: exit %d, said %q:\n%.200s", shell, code, stderr, stdout)
		}
		check := exec.CommandContext(t.Context(), shell, "-n")
		if check.Err != nil || shell == "powershell" {
			continue
		}
		check.Stdin = strings.NewReader(stdout)
		if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s does not read it: %v: %s", shell, err, said)
		}
	}
}

func TestCommandsAndFlagsAreCompleted(t *testing.T) {
	for _, x := range []struct{ args, want []string }{
		{[]string{"he"}, []string{"health\t", "help\t"}},
		{[]string{"completion", "f"}, []string{"fish\n"}},
		{[]string{"queues", "a"}, []string{"apply\t"}},
		{[]string{"health", "--re"}, []string{"--ready\t"}},
		{[]string{"serve", "--storage.pa"}, []string{"--storage.path\t"}},
	} {
		code, stdout, _ := run(t, never(t), append([]string{"__complete"}, x.args...)...)
		for _, want := range x.want {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%q: exit %d, %q has no %q", x.args, code, stdout, want)
			}
		}
	}
}

func TestEachCommandHasAManualPage(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1753000000")
	dir := filepath.Join(t.TempDir(), "man1")
	if code, stdout, stderr := run(t, never(t), "man", dir); code != 0 || stdout != "" || stderr != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, command := range []string{"fila", "fila-serve", "fila-bench", "fila-config", "fila-queues", "fila-queues-apply", "fila-check", "fila-repair", "fila-restore",
		"fila-health", "fila-completion", "fila-man", "fila-version"} {
		page, err := os.ReadFile(filepath.Join(dir, command+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{`"Jul 2025" "Fila ` + Version() + `"`, ".SH NAME\n" + strings.ReplaceAll(command, "-", `-`), ".SH SYNOPSIS", ".SH EXAMPLE"} {
			if command == "fila-queues" && part == ".SH EXAMPLE" {
				continue // its one subcommand has examples
			}
			if !strings.Contains(string(page), part) {
				t.Errorf("%s.1 does not say %q:\n%.400s", command, part, page)
			}
		}
		if command == "fila-bench" && !strings.Contains(string(page), "\n  enqueue   enqueue only\n") {
			t.Errorf("the list of workloads does not keep its lines:\n%.3000s", page)
		}
		if strings.Contains(string(page), "cobra") {
			t.Errorf("%s.1 names the generator", command)
		}
	}
}

func TestCompletionAndManRefuseWhatTheyCannotMake(t *testing.T) {
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}, {"man"}, {"man", "a", "b"}} {
		if code, stdout, stderr := run(t, never(t), args...); code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestTheVersionIsTheTagOfTheCommit(t *testing.T) {
	for recorded, want := range map[string]string{
		"v0.1.0":                               "0.1.0",
		"v1.20.3":                              "1.20.3",
		"v0.2.0-rc.1":                          "0.2.0-rc.1",
		"v0.1.0+dirty":                         next + "-dev",
		"v0.0.0-20261122132615-d7ce29d00000":   next + "-dev",
		"v0.1.1-0.20261122132615-d7ce29d00000": next + "-dev",
		"v0.2.0-rc.1.0.20261122132615-d7ce29d00000": next + "-dev",
		"v0.0.0-20261122132615-d7ce29d00000+dirty":  next + "-dev",
		"(devel)": next + "-dev",
		"":        next + "-dev",
	} {
		if got := release(recorded); got != want {
			t.Errorf("%q is version %s, want %s", recorded, got, want)
		}
	}
}

// The binary and the changelog name the same release, the one that comes next.
func TestTheChangelogBeginsWithTheNextRelease(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## ")
	heading, _, _ := strings.Cut(section, "\n")
	version, date, dated := strings.Cut(heading, " ")
	if !found || version != next {
		t.Errorf("the first section is of %q, cli/version.go says %s", heading, next)
	}
	if _, err := time.Parse("(2006-01-02)", date); dated && err != nil {
		t.Errorf("the date of the first section: %v", err)
	}
}

func TestVersionIsAFlagAsWell(t *testing.T) {
	_, want, _ := run(t, never(t), "version")
	for _, flag := range []string{"--version", "-v"} {
		if code, stdout, stderr := run(t, never(t), flag); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: exit %d, %q, stderr %q", flag, code, stdout, stderr)
		}
	}
}

func TestTheConfigurationOfPackagesIsValid(t *testing.T) {
	l, err := Load(Input{File: "../deploy/fila.toml"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Storage.Path != "/var/lib/fila/data" || l.Config.Server.ListenAddr != "127.0.0.1:5555" {
		t.Errorf("%+v, %+v", l.Config.Storage, l.Config.Server)
	}
}
