package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// This file measures what metrics cost: the second side has its admin listener on, and is scraped
// as Prometheus does, in protobuf.

// scrapeAccept is what Prometheus sends with native histograms.
const scrapeAccept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited," +
	"application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"

// scraper asks a broker for its metrics.
type scraper struct {
	addr  string
	every time.Duration

	scrapes, bytes int64
	longest        time.Duration
}

// scrapeArgs are the arguments of a broker that is scraped at an address of its own.
func scrapeArgs() (addr string, args []string, err error) {
	addr, err = harness.Reserve()
	return addr, []string{"--admin.listen_addr", addr}, err
}

// during measures a round while the broker is scraped: at once, and then so often.
func (s *scraper) during(ctx context.Context, round func(context.Context) error) error {
	scraping, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			if err := s.once(scraping); err != nil {
				done <- err
				return
			}
			select {
			case <-scraping.Done():
				done <- nil
				return
			case <-tick.C:
			}
		}
	}()
	err := round(ctx)
	stop()
	if scraped := <-done; !errors.Is(scraped, context.Canceled) {
		err = errors.Join(err, scraped)
	}
	return err
}

func (s *scraper) once(ctx context.Context) error {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", scrapeAccept)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("scrape: %s", r.Status)
	}
	s.scrapes++
	s.bytes += n
	s.longest = max(s.longest, time.Since(began))
	return nil
}

// report prints how the scrapes were.
func (s *scraper) report() {
	say("%d scrapes, %d bytes each, the longest took %v", s.scrapes, s.bytes/max(s.scrapes, 1), s.longest.Round(time.Millisecond))
}
