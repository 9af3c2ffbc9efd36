//go:build fault

package fault

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// plant returns a store in memory, and the same store with a fault.
func plant(t *testing.T, name string) (sound *storage.Memory, broken Store) {
	t.Helper()
	t.Setenv("PLANTED_FAULT", name)
	sound = storage.NewMemory()
	return sound, WrapStore(sound)
}

// commit writes one record into each family that the tests read.
func commit(t *testing.T, s Store, key string, sync bool) {
	t.Helper()
	var b storage.Batch
	for _, f := range []storage.Family{storage.Messages, storage.Leases, storage.Scheduled} {
		b.Put(f, []byte(key), []byte("value"))
	}
	if err := s.Commit(&b, sync); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, s Store, f storage.Family, key string) bool {
	t.Helper()
	_, err := s.Get(f, []byte(key))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func finds(s Store, f storage.Family) bool {
	it := s.Scan(f, nil, nil)
	defer it.Close()
	return it.Next()
}

func TestABrokerWithoutAPlantedFaultKeepsItsStore(t *testing.T) {
	if sound, s := plant(t, ""); s != Store(sound) {
		t.Errorf("the store is wrapped in a %T", s)
	}
}

func TestAnUnknownFaultIsRefused(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "PLANTED_FAULT=dropped-nack") || !strings.Contains(text, droppedAck) {
			t.Errorf("it panics with %s", text)
		}
	}()
	plant(t, "dropped-nack")
}

func TestReplyBeforeCommitWritesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sound, s := plant(t, replyBeforeCommit)
		commit(t, s, "a", true)
		if has(t, sound, storage.Messages, "a") {
			t.Error("the commit is written before it is acknowledged")
		}
		time.Sleep(lateAfter)
		synctest.Wait()
		if !has(t, sound, storage.Messages, "a") {
			t.Error("the commit is never written")
		}
		commit(t, s, "b", true)
		if !has(t, s, storage.Messages, "b") || !has(t, sound, storage.Messages, "b") {
			t.Error("a read does not see the commit before it")
		}
		commit(t, s, "c", true)
		if err := s.Sync(); err != nil || !has(t, sound, storage.Messages, "c") {
			t.Errorf("a sync does not write what is pending: %v", err)
		}
	})
}

func TestUnsyncedReplyLosesACommitWithThePower(t *testing.T) {
	sound, s := plant(t, unsyncedReply)
	commit(t, s, "a", true)
	if !has(t, sound, storage.Messages, "a") || has(t, sound.CloneSynced(), storage.Messages, "a") {
		t.Error("the commit is not written, or it is synced")
	}
}

func TestDroppedAckKeepsEveryFiftiethMessage(t *testing.T) {
	sound, s := plant(t, droppedAck)
	kept := 0
	for i := range 100 {
		key := fmt.Sprint("key-", i)
		commit(t, s, key, true)
		var ack storage.Batch
		ack.SingleDelete(storage.Messages, []byte(key))
		if err := s.Commit(&ack, true); err != nil {
			t.Fatal(err)
		}
		if has(t, sound, storage.Messages, key) {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d of 100 acked messages are kept", kept)
	}
}

func TestLostLeaseStoresAllButLeases(t *testing.T) {
	sound, s := plant(t, lostLease)
	commit(t, s, "a", true)
	if has(t, sound, storage.Leases, "a") || !has(t, sound, storage.Messages, "a") || !has(t, sound, storage.Scheduled, "a") {
		t.Error("want all records but that of the lease")
	}
}

func TestLostTimerFindsAllButDelayedMessages(t *testing.T) {
	sound, s := plant(t, lostTimer)
	commit(t, s, "a", true)
	if finds(s, storage.Scheduled) || !finds(s, storage.Messages) || !finds(sound, storage.Scheduled) {
		t.Error("want no delayed messages in a scan, and all of them stored")
	}
}

// recorder records the commands that reach a session.
type recorder struct {
	resp.Session

	said []string
}

func (r *recorder) Handle(cmds []resp.Command) {
	for _, c := range cmds {
		for _, a := range c.Args {
			r.said = append(r.said, string(a))
		}
	}
}

// handled returns the words of commands as they reach the session of a broker with a fault.
func handled(t *testing.T, fault string, commands ...string) string {
	t.Helper()
	t.Setenv("PLANTED_FAULT", fault)
	r := new(recorder)
	var cmds []resp.Command
	for _, words := range commands {
		var c resp.Command
		for w := range strings.FieldsSeq(words) {
			c.Args = append(c.Args, []byte(w))
		}
		cmds = append(cmds, c)
	}
	WrapSession(r).Handle(cmds)
	return strings.Join(r.said, " ")
}

func TestUnfencedReceiptCutsTheDeliveryNumberOfAcksAlone(t *testing.T) {
	const said = "fila.ack q id1:3 id2:4 FILA.NACK q id1:3 FILA.ACK q"
	for name, want := range map[string]string{"": said, unfencedReceipt: "fila.ack q id1 id2 FILA.NACK q id1:3 FILA.ACK q"} {
		if got := handled(t, name, "fila.ack q id1:3 id2:4", "FILA.NACK q id1:3", "FILA.ACK q"); got != want {
			t.Errorf("PLANTED_FAULT=%s: the session gets %q, want %q", name, got, want)
		}
	}
}

func TestUnorderedTakesTheOrderFromQueuesAlone(t *testing.T) {
	commands := []string{"FILA.QUEUE CREATE ordered TTL 5 ordered ON", "FILA.ENQUEUE ORDERED ON", "FILA.QUEUE HELP"}
	if got, want := handled(t, unordered, commands...), "FILA.QUEUE CREATE ordered TTL 5 ordered OFF FILA.ENQUEUE ORDERED ON FILA.QUEUE HELP"; got != want {
		t.Errorf("the session gets %q, want %q", got, want)
	}
}

func TestHalfPublishDropsEveryFifthCopy(t *testing.T) {
	sound, s := plant(t, halfPublish)
	var b storage.Batch
	for i := range 6 {
		b.Put(storage.Messages, fmt.Appendf(nil, "copy%d", i), []byte("one"))
		b.Put(storage.Leases, fmt.Appendf(nil, "copy%d", i), []byte("one"))
	}
	for i := range 6 {
		b.Put(storage.Messages, fmt.Appendf(nil, "other%d", i), fmt.Append(nil, i))
	}
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if has(t, sound, storage.Messages, fmt.Sprint("copy", i)) != (i < 5) || !has(t, sound, storage.Messages, fmt.Sprint("other", i)) || !has(t, sound, storage.Leases, fmt.Sprint("copy", i)) {
			t.Errorf("record %d: want all but the sixth message that is like the one before it", i)
		}
	}
}

func TestLostResultDropsEvery20th(t *testing.T) {
	sound, s := plant(t, lostResult)
	for i := range 20 {
		var b storage.Batch
		b.Put(storage.Results, fmt.Append(nil, i), []byte("value"))
		b.Put(storage.Messages, fmt.Append(nil, i), []byte("value"))
		if err := s.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		if has(t, sound, storage.Results, fmt.Sprint(i)) != (i < 19) || !has(t, sound, storage.Messages, fmt.Sprint(i)) {
			t.Errorf("record %d: want all but the last result", i)
		}
	}
}

func TestSlowRecoveryTakesLongOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		_, s := plant(t, slowRecovery)
		time.AfterFunc(time.Second, func() {
			if err := os.WriteFile(goOn, nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		for _, want := range []time.Duration{time.Second, 0} {
			began := time.Now()
			if finds(s, storage.Messages); time.Since(began).Truncate(time.Second) != want {
				t.Errorf("a scan takes %s, want %s", time.Since(began), want)
			}
		}
	})
}

func TestAFailingStoreFailsFromItsMarkOn(t *testing.T) {
	for _, name := range []string{readOnly, stuckLoop} {
		synctest.Test(t, func(t *testing.T) {
			sound, s := plant(t, name)
			commit(t, s, "a", true)
			if err := s.Reopen(); err != nil {
				t.Error(err)
			}
			for _, key := range []string{markedQueue, "b"} {
				var b storage.Batch
				b.Put(storage.Messages, []byte(key), nil)
				if err := s.Commit(&b, true); err == nil || has(t, sound, storage.Messages, key) {
					t.Errorf("%s: the commit of %s gives %v", name, key, err)
				}
			}
			if s.Reopen() == nil {
				t.Errorf("%s: it can be reopened", name)
			}
			want := map[string]time.Duration{readOnly: 0, stuckLoop: stuckFor}[name]
			began := time.Now()
			if !finds(s, storage.Messages) || time.Since(began) != want {
				t.Errorf("%s: a scan takes %s, want %s", name, time.Since(began), want)
			}
		})
	}
}

// Every fault must have a test above.
func TestTheTableHoldsTheFaultsThatAreTested(t *testing.T) {
	if n := len(faults()); n != 14 {
		t.Errorf("%d faults, 14 of them have tests", n)
	}
	for name, f := range faults() {
		parts := 0
		for _, wraps := range []bool{f.store != nil, f.session != nil, f.log} {
			if wraps {
				parts++
			}
		}
		if parts != 1 {
			t.Errorf("%s is planted into %d parts", name, parts)
		}
	}
}

// The replicated log asks for its fault by name, and gets that of no other part.
func TestAFaultOfTheLogIsPlantedByItsName(t *testing.T) {
	for planted, want := range map[string]bool{UnsyncedLog: true, ForgottenVote: false, lostLease: false, "": false} {
		t.Setenv("PLANTED_FAULT", planted)
		if got := Planted(UnsyncedLog); got != want {
			t.Errorf("with %q planted, %s is planted: %t", planted, UnsyncedLog, got)
		}
		if Planted(lostLease) {
			t.Errorf("with %q planted, the log has a fault of the store", planted)
		}
	}
}
