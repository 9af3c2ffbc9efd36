package broker

import (
	"testing"
	"time"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/internal/cluster"
)

// A node is online only if its present process has answered, has caught up and votes.
func TestTheStateOfAMember(t *testing.T) {
	well := cluster.Member{Status: cluster.Status{Node: "b", State: "follower", Applied: 7, Writable: true}, Voter: true, Current: true, Heard: time.Second}
	for name, x := range map[string]struct {
		change func(m *cluster.Member)
		want   commands.MemberState
	}{
		"well":              {func(*cluster.Member) {}, commands.MemberOnline},
		"a moment late":     {func(m *cluster.Member) { m.Behind, m.Late = 3, time.Second }, commands.MemberOnline},
		"late":              {func(m *cluster.Member) { m.Behind, m.Late = 3, lateAfter+1 }, commands.MemberBehind},
		"came back":         {func(m *cluster.Member) { m.Current = false }, commands.MemberBehind},
		"a learner":         {func(m *cluster.Member) { m.Voter = false }, commands.MemberOnline},
		"without its vote":  {func(m *cluster.Member) { m.Voter, m.Waiting = false, true }, commands.MemberJoining},
		"without data":      {func(m *cluster.Member) { m.Applied = 0 }, commands.MemberJoining},
		"entering":          {func(m *cluster.Member) { m.State = cluster.StateEntering }, commands.MemberJoining},
		"on a full disk":    {func(m *cluster.Member) { m.Writable = false }, commands.MemberReadOnly},
		"never heard":       {func(m *cluster.Member) { m.Heard = -1 }, commands.MemberDown},
		"silent":            {func(m *cluster.Member) { m.Heard = downAfter + 1 }, commands.MemberDown},
		"gone a moment ago": {func(m *cluster.Member) { m.Refusal = "connection refused" }, commands.MemberDown},
	} {
		t.Run(name, func(t *testing.T) {
			m := well
			x.change(&m)
			if got := memberOf(&m, "a").State; got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
}
