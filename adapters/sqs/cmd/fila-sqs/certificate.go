package main

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificate is the certificate of a listener, read again when its file has changed. One that cannot be read any more
// stays as it was.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.cert)
	if err == nil && (c.loaded == nil || !info.ModTime().Equal(c.changed)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.loaded, c.changed = &pair, info.ModTime()
		}
	}
	if c.loaded == nil {
		return nil, err
	}
	return c.loaded, nil
}
