package sqs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/bytebufferpool"
	"github.com/valyala/fasthttp"
)

// Config is what a gateway needs. Broker is required.
type Config struct {
	// Broker is how the broker is reached: address, TLS, user and password. Users of access keys take the place of that
	// user. Its ReadTimeout must be more than BlockFor.
	Broker *redis.UniversalOptions

	// KeysFile has the access keys, see [ReadKeys]. Empty: no request is verified, and all are the user of Broker.
	KeysFile string

	// PublicURL is what URLs of queues begin with, such as https://queues.example.org. Empty: the scheme and host that a
	// client has asked.
	PublicURL string

	Region  string // in names of resources; empty: us-east-1
	Account string // 12 digits, in URLs and names of resources; empty: 000000000000

	// Observe is called after each request, for metrics. Nil: nothing is observed.
	Observe func(action, code string, took time.Duration)

	// Failed is called with what an operator should see, and never has a secret. Nil: it is dropped.
	Failed func(error)
}

// BlockFor is how long one command waits for a message, and so how long a request may outlive its client.
const BlockFor = time.Second

// headerMax bounds the header of a request.
const headerMax = 16 << 10

// bodyMax bounds the body of a request: ten messages of the greatest size together, with all characters escaped.
const bodyMax = 8 << 20

// Gateway serves the API of SQS. Its methods may be called from several goroutines.
type Gateway struct {
	cfg  Config
	keys *keyFile // nil: nothing is verified
	acts map[string]action

	mu      sync.Mutex
	clients map[[2]string]*session // by user and password

	seed    maphash.Seed
	changes [64]sync.Mutex // of queues, by the hash of the name, see [call.lock]
}

// New returns a gateway. The error says what of cfg is not valid.
func New(cfg Config) (*Gateway, error) {
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.Account == "" {
		cfg.Account = "000000000000"
	}
	if !accountNames.MatchString(cfg.Account) {
		return nil, fmt.Errorf("account %q: it must be 12 digits", cfg.Account)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, string, time.Duration) {}
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	g := &Gateway{cfg: cfg, acts: actions(), clients: map[[2]string]*session{}, seed: maphash.MakeSeed()}
	if cfg.KeysFile != "" {
		keys, err := openKeys(cfg.KeysFile, cfg.Failed)
		if err != nil {
			return nil, err
		}
		g.keys = keys
	}
	return g, nil
}

// Close closes the connections to the broker.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []error
	for _, s := range g.clients {
		all = append(all, s.client.Close())
	}
	clear(g.clients)
	return errors.Join(all...)
}

// Ready returns nil if the broker answers.
func (g *Gateway) Ready(ctx context.Context) error {
	return g.session(AccessKey{}).client.Ping(ctx).Err()
}

// session is a user's connections to the broker, and what was read of queues with them.
type session struct {
	client redis.UniversalClient
	writes pipeliner // what waits for the broker's disk
	leases pipeliner // what does not
	queues recentQueues
}

// session returns the connections of the user of an access key.
func (g *Gateway) session(k AccessKey) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	as := [2]string{k.User, k.Password}
	s := g.clients[as]
	if s == nil {
		o := *g.cfg.Broker
		if k.User != "" {
			o.Username, o.Password = k.User, k.Password
		}
		s = &session{client: redis.NewUniversalClient(&o)}
		s.writes.client, s.leases.client = s.client, s.client
		g.clients[as] = s
	}
	return s
}

// call is a request under way.
type call struct {
	*session
	gateway *Gateway
	ctx     context.Context //nolint:containedctx // of the commands to the broker: it does not end
	conn    net.Conn        // of the client
	user    string          // the access key id; empty: nothing is verified
	base    string          // what URLs of queues begin with
}

// Server returns a server of HTTP/1.1 for clients; the listener may add TLS. A request has a minute to arrive, and a connection
// that is not used for ten is closed.
func (g *Gateway) Server() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      g.serve,
		ErrorHandler:                 g.refuse,
		Logger:                       logger(g.cfg.Failed),
		ReadBufferSize:               headerMax,
		StreamRequestBody:            true, // else memory is taken for the length that a client announces
		ReadTimeout:                  time.Minute,
		IdleTimeout:                  10 * time.Minute,
		CloseOnShutdown:              true,
		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true, // a header has secrets
		NoDefaultServerHeader:        true,
	}
}

// logger passes on what the server logs.
type logger func(error)

func (l logger) Printf(format string, args ...any) { l(fmt.Errorf(format, args...)) }

// refuse answers what is no request.
func (g *Gateway) refuse(r *fasthttp.RequestCtx, err error) {
	p, _ := protocolOf(r, nil) // nothing of it is decoded
	f := incomplete()
	if _, is := errors.AsType[*fasthttp.ErrSmallBuffer](err); is {
		f = requestTooLarge.of("the header of a request has at most %d bytes", headerMax)
	}
	p.fail(r, rand.Text(), f)
}

func incomplete() *fault {
	return malformed.of("the request is not valid HTTP, or has not arrived within a minute")
}

func tooLarge() *fault {
	return requestTooLarge.of("the body of a request has at most %d bytes", bodyMax)
}

// readBody reads the body of a request. Memory grows with what arrives.
func readBody(r *fasthttp.RequestCtx, body *bytebufferpool.ByteBuffer) error {
	stream := r.RequestBodyStream()
	if stream == nil {
		return nil
	}
	announced := int64(r.Request.Header.ContentLength()) // less than 0: it is sent in chunks
	if announced > 2*bodyMax {
		return tooLarge()
	}
	n, err := body.ReadFrom(io.LimitReader(stream, bodyMax+1))
	switch {
	case n > bodyMax:
		_, _ = io.CopyN(io.Discard, stream, bodyMax) // or the client, which still sends, would not see the error
		return tooLarge()
	case err != nil || n < announced:
		return incomplete()
	}
	return nil
}

// serve answers a request of a client of SQS.
func (g *Gateway) serve(r *fasthttp.RequestCtx) {
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	unread := readBody(r, buffer)
	body := buffer.B
	began := time.Now()
	id := rand.Text()
	name, code := "invalid", "ok"
	defer func() { g.cfg.Observe(name, code, time.Since(began)) }()
	p, err := protocolOf(r, body)
	err = cmp.Or(unread, err)
	defer func() { // the server does not recover
		if v := recover(); v != nil {
			g.cfg.Failed(fmt.Errorf("%s: %v\n%s", name, v, debug.Stack()))
			r.Response.Reset()
			f := internalFailure.of("the gateway has failed")
			code = f.kind.name
			p.fail(r, id, f)
		}
	}()
	var result any
	if err == nil {
		var act action
		var known bool
		if act, known = g.acts[p.action()]; known {
			name = p.action()
			result, err = g.perform(r, body, p, act)
		} else {
			err = invalidAction.of("The action %q is not valid for this endpoint.", p.action())
		}
	}
	if err != nil {
		f := faulty(err)
		code = f.kind.name
		p.fail(r, id, f)
		return
	}
	p.reply(r, id, result)
}

// perform verifies a request and carries it out.
func (g *Gateway) perform(r *fasthttp.RequestCtx, body []byte, p protocol, act action) (any, error) {
	var k AccessKey
	if g.keys != nil {
		var err error
		if k, err = g.keys.authenticate(r, body, time.Now()); err != nil {
			return nil, err
		}
	}
	c := &call{session: g.session(k), gateway: g, ctx: context.Background(), conn: r.Conn(), user: k.ID, base: g.cfg.PublicURL}
	if c.base == "" {
		c.base = "http://" + string(r.Host())
		if r.IsTLS() {
			c.base = "https://" + string(r.Host())
		}
	}
	return act(c, p.decode)
}
