package filapubsub

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"gocloud.dev/pubsub"
)

// Scheme is the scheme of the URLs that the package opens.
const Scheme = "fila"

// serverVariable is the environment variable with the URL of the broker.
const serverVariable = "FILA_SERVER_URL"

//nolint:gochecknoinits // how drivers of Go CDK are found by the scheme of a URL
func init() {
	o := &defaultOpener{}
	pubsub.DefaultURLMux().RegisterTopic(Scheme, o)
	pubsub.DefaultURLMux().RegisterSubscription(Scheme, o)
}

// URLOpener opens URLs of the form "fila://name", whose host and path are the name of a queue or topic.
//
//   - fanout=1: of a topic, send to all queues that are bound to it
//   - keyfrom=name: of a topic, the metadata that is the fairness key
//   - visibility=30s: of a subscription, the visibility timeout
//   - consumer=name: of a subscription, shown to operators
type URLOpener struct {
	Client redis.UniversalClient // connected to the broker
}

// OpenTopicURL opens a topic.
func (o *URLOpener) OpenTopicURL(_ context.Context, u *url.URL) (*pubsub.Topic, error) {
	opts, q := &TopicOptions{}, u.Query()
	for name := range q {
		switch name {
		case "fanout":
			opts.FanOut = q.Get(name) == "1" || q.Get(name) == "true"
		case "keyfrom":
			opts.KeyFrom = q.Get(name)
		default:
			return nil, fmt.Errorf("open topic %v: parameter %q is not known, it may be fanout or keyfrom", u, name)
		}
	}
	return OpenTopic(o.Client, path.Join(u.Host, u.Path), opts), nil
}

// OpenSubscriptionURL opens a subscription.
func (o *URLOpener) OpenSubscriptionURL(_ context.Context, u *url.URL) (*pubsub.Subscription, error) {
	opts, q := &SubscriptionOptions{}, u.Query()
	for name := range q {
		switch name {
		case "visibility":
			d, err := time.ParseDuration(q.Get(name))
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("open subscription %v: visibility %q is not a duration, such as 30s", u, q.Get(name))
			}
			opts.Visibility = d
		case "consumer":
			opts.Consumer = q.Get(name)
		default:
			return nil, fmt.Errorf("open subscription %v: parameter %q is not known, it may be visibility or consumer", u, name)
		}
	}
	return OpenSubscription(o.Client, path.Join(u.Host, u.Path), opts), nil
}

// defaultOpener opens URLs at the broker of the environment, and connects when the first one is opened.
type defaultOpener struct {
	once   sync.Once
	opener *URLOpener
	err    error
}

func (o *defaultOpener) connect() (*URLOpener, error) {
	o.once.Do(func() {
		server := os.Getenv(serverVariable)
		if server == "" {
			o.err = errors.New(serverVariable + " is not set, it is the URL of the broker, such as fila://127.0.0.1:5555")
			return
		}
		if rest, ours := strings.CutPrefix(server, "fila"); ours { // the schemes of Fila are those of Redis
			server = "redis" + rest
		}
		opts, err := redis.ParseURL(server)
		if err != nil {
			o.err = fmt.Errorf("%s: %w", serverVariable, err)
			return
		}
		opts.MaxRetries = -1
		o.opener = &URLOpener{Client: redis.NewClient(opts)}
	})
	return o.opener, o.err
}

// OpenTopicURL implements pubsub.TopicURLOpener.
func (o *defaultOpener) OpenTopicURL(ctx context.Context, u *url.URL) (*pubsub.Topic, error) {
	opener, err := o.connect()
	if err != nil {
		return nil, fmt.Errorf("open topic %v: %w", u, err)
	}
	return opener.OpenTopicURL(ctx, u)
}

// OpenSubscriptionURL implements pubsub.SubscriptionURLOpener.
func (o *defaultOpener) OpenSubscriptionURL(ctx context.Context, u *url.URL) (*pubsub.Subscription, error) {
	opener, err := o.connect()
	if err != nil {
		return nil, fmt.Errorf("open subscription %v: %w", u, err)
	}
	return opener.OpenSubscriptionURL(ctx, u)
}
