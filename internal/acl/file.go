package acl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Load replaces the users by those of the file. It returns the accounts that changed or
// were deleted; after an error nothing has changed.
func (u *Users) Load() ([]*Account, error) {
	u.changing.Lock()
	defer u.changing.Unlock()
	users, err := u.parseFile()
	if err != nil {
		return nil, err
	}
	return u.replace(users), nil
}

// parseFile returns the users in the file.
func (u *Users) parseFile() (map[string]*User, error) {
	if u.cfg.File == "" {
		return nil, ErrNoFile
	}
	text, err := os.ReadFile(u.cfg.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("auth.acl_file: %s does not exist; create it, it may be empty", u.cfg.File)
	}
	if err != nil {
		return nil, fmt.Errorf("auth.acl_file: %w", err)
	}
	return u.parse(u.cfg.File, strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n")) // editors write a byte order mark
}

// Save writes all users to the file, atomically and readable by its owner only.
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

func replaceFile(path, text string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator chose it
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
