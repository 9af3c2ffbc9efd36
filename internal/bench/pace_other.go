//go:build !linux

package bench

import "time"

func exactSleep() {}

func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // what a pacer does
}
