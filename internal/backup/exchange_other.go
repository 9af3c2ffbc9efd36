//go:build !linux

package backup

import "errors"

// exchange is not possible at once.
func exchange(_, _ string) error { return errors.ErrUnsupported }
