package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// identity says which cluster a directory belongs to. It is written when a node has formed or joined
// a cluster, and never changed.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // id
	Name    string `json:"name"`    // of the cluster
	Node    string `json:"node"`
	// Admitted is the entry of the log that has made the node a member; 0: an older version has written this.
	Admitted uint64 `json:"admitted,omitempty"`
}

const (
	identityFormat = 1
	identityFile   = "identity"
)

// readIdentity returns the identity in a directory, nil if there is none. It refuses one of another
// node or cluster than the configured.
func readIdentity(dir, name, node string) (*identity, error) {
	id, err := readAnyIdentity(dir)
	switch {
	case id == nil:
		return nil, err
	case id.Node != node:
		return nil, fmt.Errorf("%s belongs to node %s: it cannot be used by node %s (cluster.node_id)", dir, id.Node, node)
	case id.Name != name:
		return nil, fmt.Errorf("%s belongs to cluster %q, not %q (cluster.name)", dir, id.Name, name)
	}
	return id, nil
}

// readAnyIdentity returns the identity in a directory, whichever it is; nil: there is none.
func readAnyIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path) //nolint:gosec // below the operator's own directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a new node is no error
	}
	if err != nil {
		return nil, err
	}
	var id identity
	switch err := json.Unmarshal(text, &id); {
	case err != nil || id.Cluster == "":
		return nil, fmt.Errorf("%s is damaged: empty cluster.path and storage.path of this node, and it joins again", path)
	case id.Format > identityFormat:
		return nil, fmt.Errorf("%s was written by a newer Fila: upgrade this node", path)
	}
	return &id, nil
}

// write makes the identity durable.
func (id *identity) write(dir string) error {
	return writeJSON(filepath.Join(dir, identityFile), id)
}

// writeJSON replaces a file durably, as a whole.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	made := path + ".tmp"
	f, err := os.OpenFile(made, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // below the operator's own directory
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	d, err := os.Open(path) //nolint:gosec // the operator's own directory
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
