package acl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Load reads the file anew: the users in it are those there are from then on.
// It returns the accounts that changed or are gone; after an error nothing has.
func (u *Users) Load() ([]*Account, error) {
	if u.cfg.File == "" {
		return nil, ErrNoFile
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	text, err := os.ReadFile(u.cfg.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("auth.acl_file: %s does not exist: make it, it may be empty", u.cfg.File)
	}
	if err != nil {
		return nil, fmt.Errorf("auth.acl_file: %w", err)
	}
	users, err := u.parse(u.cfg.File, strings.Split(string(text), "\n"))
	if err != nil {
		return nil, err
	}
	return u.replace(users), nil
}

// Save writes all users to the file. A crash leaves it as it was or as it is to
// be. Nobody but its owner may read it.
func (u *Users) Save() error {
	if u.cfg.File == "" {
		return ErrNoFile
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	var text strings.Builder
	for _, user := range u.List() {
		text.WriteString(user.String() + "\n")
	}
	if err := replaceFile(u.cfg.File, text.String()); err != nil {
		return fmt.Errorf("auth.acl_file: %w", err)
	}
	return nil
}

func replaceFile(path, text string) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // renamed; that it is on disk by now cannot be known
	}
	_ = d.Sync() // not every file system can
	return d.Close()
}
