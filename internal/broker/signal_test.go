package broker

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Signals that come together, as from a supervisor and a terminal, count as one.
func TestTwoSignalsTogetherStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, stopped, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
		go func() {
			stopTwice(signals, func() { close(stopped) })
			close(ended)
		}()
		synctest.Wait()
		isClosed(t, "stopped before any signal", stopped, false)
		signals <- syscall.SIGTERM
		signals <- syscall.SIGINT
		synctest.Wait()
		isClosed(t, "stopped", stopped, true)
		time.Sleep(sameSignal - time.Nanosecond)
		signals <- syscall.SIGTERM
		synctest.Wait()
		isClosed(t, "ended by what came together", ended, false)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		isClosed(t, "ended by what came together and was read later", ended, false)
		signals <- syscall.SIGTERM
		synctest.Wait()
		isClosed(t, "ended by the second signal", ended, true)
	})
}

func isClosed(t *testing.T, what string, c <-chan struct{}, want bool) {
	t.Helper()
	select {
	case <-c:
		if !want {
			t.Error(what)
		}
	default:
		if want {
			t.Error("not " + what)
		}
	}
}
