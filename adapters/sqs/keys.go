package sqs

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// AccessKey is what a client signs its requests with, and the user of the broker that it is.
type AccessKey struct {
	ID       string `json:"access_key_id"`
	Secret   string `json:"secret_access_key"`
	User     string `json:"user"`     // of the broker; empty: the one of the connection's URL
	Password string `json:"password"` // of that user
}

// ReadKeys reads access keys from a file: a JSON array of objects with the fields of [AccessKey]. The error names the
// first key that is incomplete or given twice, and never a secret.
func ReadKeys(file string) (map[string]AccessKey, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("access keys: %w", err)
	}
	var list []AccessKey
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("access keys: %s is not a JSON array of objects: %s", file, plain(err))
	}
	keys := map[string]AccessKey{}
	for i, k := range list {
		switch _, twice := keys[k.ID]; {
		case k.ID == "" || k.Secret == "":
			return nil, fmt.Errorf("access keys: entry %d of %s needs access_key_id and secret_access_key", i+1, file)
		case twice:
			return nil, fmt.Errorf("access keys: %s has %s twice", file, k.ID)
		}
		keys[k.ID] = k
	}
	return keys, nil
}

// keyFile is a file of access keys, read again when it has changed.
type keyFile struct {
	name   string
	signer *v4.Signer // it remembers the keys that it has derived from secrets

	mu      sync.Mutex
	keys    map[string]AccessKey
	changed time.Time // of the file, when it was read
	looked  time.Time // when its time was asked last
	failure func(error)
}

// lookEvery is how long a change of the file, or of a queue's attributes, may remain unseen.
const lookEvery = time.Second

// openKeys reads a file. failure is called when it cannot be read later on: the keys that it had stay.
func openKeys(name string, failure func(error)) (*keyFile, error) {
	f := &keyFile{name: name, failure: failure, signer: v4.NewSigner()}
	info, err := os.Stat(name)
	if err == nil {
		f.changed = info.ModTime()
	}
	f.keys, err = ReadKeys(name)
	return f, err
}

// find returns the access key with an id.
func (f *keyFile) find(id string, now time.Time) (AccessKey, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) >= lookEvery {
		f.looked = now
		f.refresh()
	}
	k, ok := f.keys[id]
	return k, ok
}

func (f *keyFile) refresh() {
	info, err := os.Stat(f.name)
	if err == nil && info.ModTime().Equal(f.changed) {
		return
	}
	if err == nil {
		var keys map[string]AccessKey
		if keys, err = ReadKeys(f.name); err == nil {
			f.keys = keys
		}
		f.changed = info.ModTime()
	}
	if err != nil {
		f.failure(err)
	}
}
