//go:build plain

package tuning

// Enabled reports whether the mechanisms are part of the build.
const Enabled = false
