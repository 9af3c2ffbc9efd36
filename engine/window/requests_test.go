package window

import "testing"

func TestUrgentReadsComeFirst(t *testing.T) {
	var q Requests[string]
	q.Prefetch("a")
	q.Urgent("b")
	q.Urgent("c")
	for _, want := range []struct {
		memory     bool
		key        string
		urgent, ok bool
	}{{true, "b", true, true}, {false, "c", true, true}, {false, "", false, false}, {true, "a", false, true}, {true, "", false, false}} {
		if most, ok := q.MostUrgent(); ok != want.urgent || ok && most != want.key {
			t.Errorf("%q is the most urgent, %v; want %+v", most, ok, want)
		}
		if k, urgent, ok := q.Next(want.memory); k != want.key || urgent != want.urgent || ok != want.ok {
			t.Errorf("%q, urgent %v, %v; want %+v", k, urgent, ok, want)
		}
	}
}

func TestReadsThatFailPauseOneKeyOrAll(t *testing.T) {
	const never, most = int64(1 << 62), 3
	var q Requests[string]
	if q.NextAt(0, never) != never {
		t.Error("something is due without a read")
	}
	for i := range most {
		if q.PausedTo != 0 {
			t.Fatalf("all reads pause after %d failures", i)
		}
		q.BackOff("k", &Read[Place]{}, int64(10+i))
		q.Failed(most, 50)
	}
	if failed, resting := q.Failing(); q.PausedTo != 50 || failed != most || resting != most || q.NextAt(0, never) != 10 {
		t.Errorf("paused to %d after %d failures, %d keys rest, next at %d", q.PausedTo, failed, resting, q.NextAt(0, never))
	}
	for i := range most {
		if _, _, ok := q.Resume(int64(9 + i)); ok {
			t.Errorf("key %d resumes early", i)
		}
		if k, read, ok := q.Resume(int64(10 + i)); k != "k" || read == nil || !ok {
			t.Errorf("key %d does not resume", i)
		}
	}
	if _, resting := q.Failing(); q.NextAt(49, never) != 50 || q.NextAt(50, never) != never || resting != 0 {
		t.Errorf("next at %d while reads pause, then at %d", q.NextAt(49, never), q.NextAt(50, never))
	}
	q.Succeeded()
	if failed, _ := q.Failing(); failed != 0 {
		t.Error("a read that succeeds does not end the row of failures")
	}
}
