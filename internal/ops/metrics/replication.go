package metrics

import (
	"time"

	"github.com/faisca/fila/internal/histogram"
)

// Replication is the figures of a node of a cluster.
type Replication struct {
	Leads     bool // this node leads
	HasLeader bool // some node is known to
	Term      uint64
	Applied   uint64
	Commit    uint64
	States    map[string]uint64 // members by state
	Voters    int64
	Behind    uint64        // batches that this node lacks
	Late      time.Duration // since it lacks any
	Heard     time.Duration // since the leader was heard
	Skew      time.Duration // greatest difference between the clocks of two nodes
	LinkUp    bool
	Writable  bool
	LogBytes  int64
	Sending   int64 // copies of the store that are being sent
	Failovers uint64
	Confirms  *histogram.Histogram
	Applies   *histogram.Histogram
}

const textReplication = "Without a cluster there are no series of these. Each node shows its own. A node that does not lead answers without the figures of the engine, " +
	"which the leader has: queues, keys, throttles, budgets, scripts."

func replicationRows() []row {
	return []row{
		{clusterLeads, Metric{"cluster_leads", Gauge, nil, "Whether this node leads: 1 or 0.", "`role` of `INFO replication`"}},
		{clusterHasLeader, Metric{"cluster_has_leader", Gauge, nil, "Whether this node knows a leader: 1 or 0.", "`cluster_state` of `INFO cluster`"}},
		{clusterMembers, Metric{"cluster_members", Gauge, []string{labelState}, "Nodes by state, as this one sees them: online, behind, readonly, joining, down.", "`FILA.CLUSTER STATUS`"}},
		{clusterVoters, Metric{"cluster_voters", Gauge, nil, "Nodes that vote.", "`INFO cluster`"}},
		{clusterTerm, Metric{"cluster_term", Gauge, nil, "Term of the replicated log: each election begins one.", "`INFO cluster`"}},
		{clusterFailovers, Metric{"cluster_failovers_total", Counter, nil, "Changes from one leader to another that this node has seen.", "`INFO cluster`"}},
		{clusterApplied, Metric{"cluster_applied_index", Gauge, nil, "Newest batch in the store of this node, as an index of the log.", "`INFO cluster`"}},
		{clusterCommit, Metric{"cluster_commit_index", Gauge, nil, "Newest entry of the log that a majority has, as far as this node knows.", "`INFO cluster`"}},
		{clusterBehind, Metric{"cluster_behind_entries", Gauge, nil, "Entries that another node had a second ago, and this one has not.", "`INFO cluster`"}},
		{clusterLate, Metric{"cluster_behind_seconds", Gauge, nil, "Time since this node had all that the others had; 0: it has.", "`INFO cluster`"}},
		{clusterHeard, Metric{"cluster_leader_contact_seconds", Gauge, nil, "Time since this node has heard of the leader; 0 on the leader.", "`INFO cluster`"}},
		{clusterLink, Metric{"cluster_link_up", Gauge, nil, "Whether this node leads, or has heard of the leader lately: 1 or 0.", "`INFO cluster`"}},
		{clusterSkew, Metric{"cluster_clock_skew_seconds", Gauge, nil, "Greatest difference between the clock of this node and that of another one.", "`INFO cluster`"}},
		{clusterWritable, Metric{"cluster_node_writable", Gauge, nil, "Whether the store and the log of this node take writes: 1 or 0.", "`INFO cluster`"}},
		{clusterLog, Metric{"cluster_log_bytes", Gauge, nil, "Size of the replicated log of this node.", "`INFO cluster`"}},
		{clusterSending, Metric{"cluster_snapshots_sending", Gauge, nil, "Copies of the store that this node sends to others.", "`INFO cluster`"}},
		{clusterForwarded, Metric{"cluster_forwarded_commands_total", Counter, nil, "Commands of clients of this node that were passed on to the leader.", "`INFO cluster`"}},
		{clusterConfirm, Metric{"cluster_confirm_duration_seconds", Histogram, nil, "Time until a majority has confirmed the leader, before it answers what no commit confirms.", ""}},
		{clusterApply, Metric{"cluster_apply_duration_seconds", Histogram, nil, "Time that writing a batch of the log to the store of this node took.", ""}},
	}
}

func (r *Replication) write(f *families) {
	f.flag(clusterLeads, r.Leads, nil)
	f.flag(clusterHasLeader, r.HasLeader, nil)
	f.by(clusterMembers, labelState, r.States)
	f.number(clusterVoters, r.Voters, nil)
	f.count(clusterTerm, r.Term, nil)
	f.count(clusterFailovers, r.Failovers, nil)
	f.count(clusterApplied, r.Applied, nil)
	f.count(clusterCommit, r.Commit, nil)
	f.count(clusterBehind, r.Behind, nil)
	f.value(clusterLate, r.Late.Seconds(), nil)
	f.value(clusterHeard, r.Heard.Seconds(), nil)
	f.flag(clusterLink, r.LinkUp, nil)
	f.value(clusterSkew, r.Skew.Seconds(), nil)
	f.flag(clusterWritable, r.Writable, nil)
	f.number(clusterLog, r.LogBytes, nil)
	f.number(clusterSending, r.Sending, nil)
	f.observed(clusterConfirm, r.Confirms, nil)
	f.observed(clusterApply, r.Applies, nil)
}
