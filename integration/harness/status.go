package harness

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Status is a part of what a node says of itself on its node port.
type Status struct {
	State   string `json:"state"`   // entering, follower, candidate or leader
	Last    uint64 `json:"last"`    // index of the newest entry of its log
	Applied uint64 `json:"applied"` // index of the newest entry in its store
}

// Status asks a node without TLS for its status, as another node does.
func (n *Node) Status(ctx context.Context) (s Status, err error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", n.port)
	if err != nil {
		return s, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return s, err
	}
	greeting := `{"version":1,"name":"fila","node":"harness"}`
	ask := append(binary.BigEndian.AppendUint16([]byte{'Q'}, uint16(len(greeting))), greeting...)
	if _, err := c.Write(append(ask, 'S', 0, 0, 0, 0)); err != nil {
		return s, err
	}
	head := make([]byte, 1+1+4)
	if _, err := io.ReadFull(c, head); err != nil {
		return s, err
	}
	if head[0] != 0 || head[1] != 0 {
		return s, errors.New("the node does not answer")
	}
	body := make([]byte, binary.BigEndian.Uint32(head[2:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("status of node %s: %w", n.ID, err)
	}
	return s, nil
}
