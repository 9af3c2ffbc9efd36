package cluster

import (
	"errors"
	"net"
	"testing"
)

// A node that has ceased to lead refuses what it is asked as a cluster without a leader does, so that clients try again.
func TestANodeThatHasCeasedToLeadRefusesLikeAClusterWithoutALeader(t *testing.T) {
	for _, refusal := range []error{ErrNoLeader, errors.New("another reason")} {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			answerQuestions(far, "a", func(string, question, []byte) ([]byte, error) { return nil, refusal })
		}()
		_, err := askOn(near, askChange, nil, nil)
		if err == nil || err.Error() != refusal.Error() || errors.Is(err, ErrNoLeader) != errors.Is(refusal, ErrNoLeader) {
			t.Errorf("%v is taken for %v", refusal, err)
		}
		_ = near.Close()
	}
}
