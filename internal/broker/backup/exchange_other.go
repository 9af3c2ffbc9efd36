//go:build !linux

package backup

import "errors"

// exchange is not available.
func exchange(_, _ string) error { return errors.ErrUnsupported }
