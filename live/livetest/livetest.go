// Package livetest compares the observations of a Live behind a transport with those of a Loader.
package livetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/live/transport/transporttest"
	"github.com/goatnote-inc/robocache/loader"
)

// Run plays a recording through a transport and compares the observation of each tick with the
// sample of a Loader of the recording, bit by bit.
func Run(t *testing.T, serve transporttest.Serve) {
	t.Run("Synthetic", func(t *testing.T) { run(t, serve, transporttest.Synthetic(t)) })
	t.Run("Recorded", func(t *testing.T) { run(t, serve, transporttest.Real(t)) })
}

// patience is how long a message may take from the publisher to the Live.
const patience = 20 * time.Second

// player publishes a recording message by message.
type player struct {
	t      *testing.T
	rec    *transporttest.Recording
	server transporttest.Server
	live   *live.Live
	topics map[string]bool // of the contract
	order  []int           // of messages by log time
	next   int             // in order
	sent   int64           // messages of those topics
}

func run(t *testing.T, serve transporttest.Serve, rec *transporttest.Recording) {
	if rec == nil {
		t.Skip("no shared data: the recorded messages are not there (set ROBOCACHE_TESTDATA)")
	}
	ds, err := robocache.Open(t.Context(), rec.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	cfg := loader.Config{}
	cfg.Keys = ds.Info().Keys() // also if the recording has topics that cannot be read
	cfg.Hz = &robocache.Rate{Num: 20, Den: 1}
	cfg.Align = &align.Config{CausalOptions: align.CausalOptions{Causal: true}}
	ld, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ld.Close()
	c, err := ld.Contract()
	if err != nil {
		t.Fatal(err)
	}
	items, err := loader.NewMap(t.Context(), ds, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer items.Close()
	l, err := live.Open(t.Context(), c, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &player{t: t, rec: rec, server: serve(t, rec), live: l, topics: map[string]bool{}}
	for _, topic := range l.Topics() {
		p.topics[topic] = true
	}
	for i := range rec.Messages {
		p.order = append(p.order, i)
	}
	slices.SortStableFunc(p.order, func(i, j int) int {
		return cmp.Compare(rec.Messages[i].Log, rec.Messages[j].Log)
	})
	if err := p.server.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.server.Stop()
	if err := l.Run(t.Context(), p.server.URI()); err != nil {
		t.Fatal(err)
	}
	p.connect()
	p.compare(items)
}

// connect publishes the first message of each topic until all have been received, since discovery
// takes a while. A message that arrives twice changes no observation.
func (p *player) connect() {
	first := map[string]int{}
	for i := len(p.rec.Messages) - 1; i >= 0; i-- {
		if topic := p.rec.Messages[i].Channel.Topic; p.topics[topic] {
			first[topic] = i
		}
	}
	dropReceived := func() {
		counts := p.live.Stats()
		for _, s := range p.live.Contract.Streams {
			if s.Message != nil && counts[s.Key].Received > 0 {
				delete(first, s.Message.Topic)
			}
		}
	}
	for begin := time.Now(); len(first) > 0; dropReceived() {
		if time.Since(begin) > patience {
			p.t.Fatalf("topics that were not received: %v, %v", first, p.live.Err())
		}
		for _, i := range first {
			p.publish(i)
		}
		time.Sleep(300 * time.Millisecond)
	}
	for before := int64(-1); before != p.live.MessagesReceived(); {
		before = p.live.MessagesReceived()
		time.Sleep(1500 * time.Millisecond) // a message may be on its way
	}
	p.sent = p.live.MessagesReceived()
}

func (p *player) publish(i int) {
	if err := p.server.Publish(i); err != nil {
		p.t.Fatal(err)
	}
}

// publishUntil publishes all messages that were logged at or before a tick, and waits for them.
func (p *player) publishUntil(tick int64) {
	for ; p.next < len(p.order) && p.rec.Messages[p.order[p.next]].Log <= tick; p.next++ {
		i := p.order[p.next]
		p.publish(i)
		if p.topics[p.rec.Messages[i].Channel.Topic] {
			p.sent++
		}
	}
	for begin := time.Now(); p.live.MessagesReceived() < p.sent; time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			p.t.Fatalf("%d of %d messages were received: %v", p.live.MessagesReceived(), p.sent,
				p.live.Err())
		}
	}
}

// compare compares the observation of each tick with a sample of a Loader.
func (p *player) compare(items *loader.Map) {
	var o *live.Observation
	padded, values := 0, 0
	for i := range items.Len() {
		times, err := items.Times(p.t.Context(), []int64{i})
		if err != nil {
			p.t.Fatal(err)
		}
		p.publishUntil(times[0])
		if o, err = p.live.Observe(p.t.Context(), times[0], 0, o); err != nil {
			p.t.Fatal(err)
		}
		want, err := items.Items(p.t.Context(), []int64{i})
		if err != nil {
			p.t.Fatal(err)
		}
		if different := o.Differences(want); different != nil {
			p.t.Fatalf("tick %d of %d: different bits %v", i, items.Len(), different)
		}
		want.Release()
		for k, f := range o.Fields {
			if t, _ := o.Entry(k); f.Mask {
				values++
				padded += int(t.Data[0])
			}
		}
	}
	if items.Len() == 0 || padded == values {
		p.t.Errorf("%d ticks, %d of %d values are padding", items.Len(), padded, values)
	}
	p.t.Logf("%d ticks: 0 different bits; %d of %d values are padding", items.Len(), padded, values)
}
