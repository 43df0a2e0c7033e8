// Package metrics exports existing statistics to Prometheus.
//
// # Contract
//
//	metrics.M1  Nothing is counted for this package. A scrape reads the statistics that the loader
//	            and the engines keep anyway. Without a scrape it costs nothing.
//	metrics.M2  An address without a host listens on the loopback interface only. To listen on all
//	            interfaces, pass 0.0.0.0:9400.
//	metrics.M3  Labels come from fixed lists. They contain no URIs, file names, messages, or other
//	            user data.
package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goatnote-inc/robocache"
)

// Server answers /metrics and /healthz until it is closed.
type Server struct {
	http http.Server
	addr string
}

// Serve listens at addr (":9400"; ":0" uses a free port). The caller must close the server.
func Serve(addr string, of ...prometheus.Collector) (*Server, error) {
	bad := func(err error, hint string) error {
		return robocache.Misuse("metrics", robocache.Where{"address": addr}, "").WithCause(err).
			WithHint("%s", hint)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, bad(err, "such as :9400, or 0.0.0.0:9400 for all interfaces")
	}
	if host == "" {
		host = "127.0.0.1" // metrics.M2
	}
	registry := prometheus.NewRegistry()
	for _, c := range of {
		if err := registry.Register(c); err != nil {
			return nil, bad(err, "")
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, bad(
			err,
			"processes of one machine need a port each: add the local rank to it, or take :0",
		)
	}
	mux := http.NewServeMux()
	mux.Handle(
		"GET /metrics",
		promhttp.HandlerFor(
			registry,
			promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second},
		),
	)
	mux.HandleFunc(
		"GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") },
	)
	s := &Server{
		http: http.Server{
			Handler:           mux,
			ReadHeaderTimeout: 5 * time.Second,
			IdleTimeout:       time.Minute,
		},
		addr: l.Addr().String(),
	}
	go func() { _ = s.http.Serve(l) }() // ends with Close
	return s, nil
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() string { return s.addr }

// Close stops the server. A nil Server is ignored.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	if err := s.http.Close(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Sample is one value of a family, with its label if the family has one.
type Sample struct {
	Label string
	Value float64
}

// Family is a metric. A scrape computes its samples from statistics of type S.
type Family[S any] struct {
	Name, Help string
	Kind       prometheus.ValueType
	Label      string // name of the label; "" if none
	Read       func(s *S) []Sample
}

// Of returns a collector for a table of families. Each scrape calls read once.
func Of[S any](table []Family[S], read func() S) prometheus.Collector {
	return &collector[S]{table, read}
}

type collector[S any] struct {
	table []Family[S]
	read  func() S
}

func (f *Family[S]) desc() *prometheus.Desc {
	var labels []string
	if f.Label != "" {
		labels = []string{f.Label}
	}
	return prometheus.NewDesc("robocache_"+f.Name, f.Help, labels, nil)
}

func (c *collector[S]) Describe(to chan<- *prometheus.Desc) {
	for i := range c.table {
		to <- c.table[i].desc()
	}
}

func (c *collector[S]) Collect(to chan<- prometheus.Metric) {
	s := c.read()
	for i := range c.table {
		f := &c.table[i]
		d := f.desc()
		for _, v := range f.Read(&s) {
			if f.Label == "" {
				to <- prometheus.MustNewConstMetric(d, f.Kind, v.Value)
			} else {
				to <- prometheus.MustNewConstMetric(d, f.Kind, v.Value, v.Label)
			}
		}
	}
}
