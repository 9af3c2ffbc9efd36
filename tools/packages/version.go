package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is what packages are made of: the release that a tag names, or a commit on the way to the next one.
type release struct {
	number    string // such as 0.1.0
	candidate string // the number of a release candidate; empty for none
	commit    string // of a build that is no release
	time      time.Time
	ref       string // what URLs of the sources name: the tag, or the commit
}

// tagged is the form of the tags of releases, as in cli/version.go.
var tagged = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-rc\.(\d+))?$`)

// released returns what the sources are. The rule is that of the broker: a commit with a tag, without changes, is the
// release of the tag; anything else is on the way to the one that cli/version.go names. Sources without git need
// SOURCE_DATE_EPOCH.
func released(ctx context.Context, root string) (release, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	at, named := os.LookupEnv("SOURCE_DATE_EPOCH")
	commit, err := git("rev-parse", "HEAD")
	checkout := err == nil
	switch {
	case !checkout && !named:
		return release{}, errors.New("this is no git checkout: set SOURCE_DATE_EPOCH to the time of the release")
	case !named:
		if at, err = git("log", "-1", "--format=%ct"); err != nil {
			return release{}, fmt.Errorf("git log: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s is no time in seconds", at)
	}
	rel := release{time: time.Unix(seconds, 0).UTC()}
	if !checkout {
		rel.commit, rel.ref = "000000000000", "main"
		rel.number, err = next(root)
		return rel, err
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return release{}, fmt.Errorf("git status: %w", err)
	}
	tag, err := git("describe", "--tags", "--exact-match", "--match", "v[0-9]*", "HEAD")
	if part := tagged.FindStringSubmatch(tag); err == nil && changed == "" && part != nil {
		rel.number, rel.candidate, rel.ref = part[1], part[2], tag
		return rel, nil
	}
	rel.commit, rel.ref = commit, commit
	rel.number, err = next(root)
	return rel, err
}

// next returns the release that is being worked on.
func next(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "cli", "version.go"))
	if err != nil {
		return "", err
	}
	part := regexp.MustCompile(`(?m)^const next = "(.+)"$`).FindSubmatch(text)
	if part == nil {
		return "", errors.New("cli/version.go has no constant next")
	}
	return string(part[1]), nil
}

// form returns the version with what its registry writes before the number of a candidate, or before the time of a
// commit, which is a version before the release.
func (r release) form(candidate, commit string) string {
	switch {
	case r.commit != "":
		return r.number + commit + r.stamp()
	case r.candidate != "":
		return r.number + candidate + r.candidate
	}
	return r.number
}

func (r release) stamp() string { return r.time.Format("20060102150405") }

func (r release) python() string { return r.form("rc", ".dev") }
func (r release) npm() string    { return r.form("-rc.", "-dev.") }
func (r release) gem() string    { return r.form(".rc.", ".dev.") }

// composer has no number behind dev: of a commit, it is the branch on the way to a release.
func (r release) composer() string {
	if r.commit != "" {
		return r.number + "-dev"
	}
	return r.form("-RC", "")
}

// module is the tag, or a pseudo-version as the Go command makes them. It orders before the release.
func (r release) module() string {
	if r.commit != "" {
		return "v" + r.number + "-0." + r.stamp() + "-" + r.commit[:12]
	}
	return "v" + r.form("-rc.", "")
}
