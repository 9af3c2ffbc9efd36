package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/v2"
	gotoml "github.com/pelletier/go-toml/v2"

	"github.com/faisca/fila/cli/remote"
)

const envPrefix = "FILA_"

// files are where a configuration is looked for when none is named. The first
// that is there is used, alone.
func files() []string { return []string{"fila.toml", "/etc/fila/fila.toml"} }

// Input is all that a configuration can be made from besides the defaults.
type Input struct {
	File    string            // as named by --config; empty: the usual places
	Environ []string          // as os.Environ gives it
	Flags   map[string]string // setting name to text
}

// Loaded is a configuration and where each setting of it came from.
type Loaded struct {
	Config Config
	File   string // that was read; empty: none

	settings []setting
	sources  map[string]string // setting name to "flag", a file, a variable
}

// Load applies the layers in order and checks the outcome. Its error is one
// line that names the setting, where it was given and what it has to be, and is
// a [UsageError]: nothing was started yet, and starting again will not help.
func Load(in Input) (*Loaded, error) {
	l := &Loaded{sources: map[string]string{}}
	l.settings = settings(&l.Config)
	for _, s := range l.settings {
		s.value.reset()
	}
	for _, layer := range []func(Input) error{l.file, l.environ, l.flags} {
		if err := layer(in); err != nil {
			return nil, UsageError{Err: err}
		}
	}
	for _, path := range []*string{&l.Config.Storage.Path, &l.Config.Storage.BackupPath, &l.Config.Cluster.Path} {
		expanded, err := expand(*path)
		if err != nil {
			return nil, UsageError{Err: err}
		}
		*path = expanded
	}
	if err := l.Config.check(); err != nil {
		return nil, UsageError{Err: err}
	}
	if err := l.queues(); err != nil {
		return nil, UsageError{Err: err}
	}
	return l, nil
}

func (l *Loaded) file(in Input) error {
	path, err := find(in.File)
	if path == "" || err != nil {
		return err
	}
	tree := koanf.New(".")
	if err := tree.Load(bytesOf{path}, toml.Parser()); err != nil {
		return fileError(path, err)
	}
	l.File = path
	values := tree.All()
	// All mistakes are reported in one line, in the order of names.
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		raw := values[name]
		if slices.Contains(tableNames(), name) {
			if err := l.ownTables(path, name, raw); err != nil {
				return err
			}
			continue
		}
		if sub, ok := raw.(map[string]any); ok && len(sub) == 0 && l.hasSection(name) {
			continue // a section that is there but empty
		}
		s, err := l.lookup(name)
		if err == nil {
			err = s.blame(s.value.set(raw))
		}
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		l.sources[name] = path
	}
	if more := len(wrong) - mistakesMax; more > 0 {
		wrong = append(wrong[:mistakesMax], fmt.Sprintf("and %d more", more))
	}
	if wrong != nil {
		return fmt.Errorf("%s: %s", path, strings.Join(wrong, "; "))
	}
	return nil
}

// mistakesMax bounds the settings of a file that an error names.
const mistakesMax = 5

func (l *Loaded) environ(in Input) error {
	for _, pair := range slices.Sorted(slices.Values(in.Environ)) {
		variable, text, _ := strings.Cut(pair, "=")
		key, ours := strings.CutPrefix(variable, envPrefix)
		if !ours || notASetting(key, text) {
			continue
		}
		section, rest, _ := strings.Cut(key, "__")
		s, err := l.lookup(strings.ToLower(section + "." + rest))
		if err != nil {
			return fmt.Errorf("%s in the environment: no such setting%s", variable, l.suggest(strings.ToLower(section+"."+rest), setting.env))
		}
		if err := s.blame(s.value.parse(text)); err != nil {
			return fmt.Errorf("%s in the environment: %w", variable, err)
		}
		l.sources[s.name] = variable
	}
	return nil
}

func (l *Loaded) flags(in Input) error {
	for _, name := range slices.Sorted(maps.Keys(in.Flags)) {
		s, err := l.lookup(name)
		if err == nil {
			err = s.blame(s.value.parse(in.Flags[name]))
		}
		if err != nil {
			return err
		}
		l.sources[name] = "--" + name
	}
	return nil
}

// blame puts the setting's name before what is wrong with its value.
func (s setting) blame(err error) error {
	if err == nil {
		return nil
	}
	if s.secret {
		return fmt.Errorf("%s must be %s", s.name, s.value.bounds()) // without the value
	}
	return fmt.Errorf("%s %w", s.name, err)
}

func (l *Loaded) lookup(name string) (setting, error) {
	i := slices.IndexFunc(l.settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, fmt.Errorf("no setting is named %s%s", name, l.suggest(name, func(s setting) string { return s.name }))
	}
	return l.settings[i], nil
}

// suggest is a hint at the setting that was probably meant.
func (l *Loaded) suggest(name string, show func(setting) string) string {
	names := make([]string, len(l.settings))
	for i, s := range l.settings {
		names[i] = s.name
	}
	// A setting of a section that was written outside of it.
	i := slices.IndexFunc(names, func(full string) bool { return strings.HasSuffix(full, "."+name) })
	if i < 0 {
		i = remote.Nearest(name, names)
	}
	if i >= 0 {
		return fmt.Sprintf("; did you mean %s?", show(l.settings[i]))
	}
	return "; `fila config` lists all"
}

func (l *Loaded) hasSection(name string) bool {
	return slices.ContainsFunc(l.settings, func(s setting) bool { return s.section() == name })
}

// ofKubernetes matches the variables, without FILA_, that Kubernetes sets in every container beside a service
// whose name is "fila" or begins with "fila-". Settings have two underscores behind their section.
var ofKubernetes = regexp.MustCompile(`^([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// portOfKubernetes matches the name and value of one more, which is a mistake with another value.
var portOfKubernetes = regexp.MustCompile(`^([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://`)

// notASetting recognizes variables that begin like settings and must not stop the start. No section may be
// named as they begin. They are those of Kubernetes; FILA_URL, where the other commands find a broker;
// FILA_MESSAGE_ID and the like, which a worker passes on to the programs that it starts; and the settings of fila-sqs and
// fila-outbox, which may be started from the same shell.
func notASetting(key, value string) bool {
	return key == "URL" || strings.HasPrefix(key, "MESSAGE_") || strings.HasPrefix(key, "SQS_") || strings.HasPrefix(key, "OUTBOX_") || ofKubernetes.MatchString(key) || portOfKubernetes.MatchString(key+"="+value)
}

// find is the file to read; a named one has to be there.
func find(named string) (string, error) {
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("--config: %w", err)
		}
		return named, nil
	}
	for _, path := range files() {
		// A file that is there but cannot be looked at is not passed over: it may
		// hold the password.
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("configuration: %w", err)
		}
	}
	return "", nil
}

// fileError says where in the file it is wrong.
func fileError(path string, err error) error {
	if at, ok := errors.AsType[*gotoml.DecodeError](err); ok {
		row, column := at.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, column, strings.TrimPrefix(at.Error(), "toml: "))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("configuration: %w", err)
	}
	return fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "toml: "))
}

// expand resolves the home directory at the start of a path. Only there, and
// only these two spellings: a path with a dollar sign further in is a path.
func expand(path string) (string, error) {
	for _, home := range []string{"~", "$HOME"} {
		rest, ok := strings.CutPrefix(path, home)
		if !ok || (rest != "" && rest[0] != '/') {
			continue
		}
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("storage.path %s: there is no home directory: %w", path, err)
		}
		return filepath.Join(dir, rest), nil
	}
	return path, nil
}

// readText reads a file of text. A byte order mark before it, which some editors write, is skipped.
func readText(path string) ([]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user has named this file
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// bytesOf gives koanf the bytes of a file.
type bytesOf struct{ path string }

func (b bytesOf) ReadBytes() ([]byte, error) { return readText(b.path) }

func (b bytesOf) Read() (map[string]any, error) {
	return nil, errors.New("a file has to be parsed")
}
