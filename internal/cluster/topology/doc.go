// Package topology writes what clients of Redis Cluster and of Redis Sentinel ask about nodes: the replies
// of CLUSTER and SENTINEL. A View is a value, so everything here is a function of it.
//
// All queues are on one node, the leader. So there is one range of slots: the leader is its master, the
// other nodes are replicas. While no leader is known, the last one is shown, as a Redis Cluster keeps
// showing a master that fails until a replica has its place, and is marked as failing.
package topology
