package transporttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache/live/transport"
)

// Server publishes the messages of a recording, as a robot does. Its methods are called by one
// goroutine at a time.
type Server interface {
	// URI returns the URI of the transport. It is the same before Start and after a restart.
	URI() string
	// Start starts the publisher. It is called again after Stop.
	Start() error
	// Publish sends a message of the recording with its log time, if the transport carries one. It
	// may return before the message is received. It may be called several times for a message.
	Publish(i int) error
	// Stop ends the publisher at once, as if its process were killed. It does nothing if the
	// publisher is not running.
	Stop() error
}

// Serve returns a server for a recording. The server is not started.
type Serve func(t *testing.T, rec *Recording) Server

// Options describes a transport.
type Options struct {
	LogTimes  bool    // messages carry the log times of the recording
	NoSchemas bool    // channels have no schema
	NoTypes   bool    // channels have no encoding
	Speed     float64 // of playing, relative to the recording; 0 means 4
	// Minimum share of the messages of a topic that must be received while the publisher is
	// running. 0 means all.
	MinShare float64
}

// receiveLimit is the maximum time between sending and receiving a message.
const receiveLimit = 30 * time.Second

// Run tests a transport. The package of the transport must be imported, so that its scheme is
// registered.
func Run(t *testing.T, serve Serve, opt Options) {
	opt.Speed = cmp.Or(opt.Speed, 4)
	synthetic := Synthetic(t)
	test := func(name string, rec *Recording, check func(t *testing.T, s *session)) {
		t.Run(name, func(t *testing.T) {
			s := &session{rec: rec, opt: opt, server: serve(t, rec)}
			t.Cleanup(func() { s.server.Stop() })
			check(t, s)
		})
	}
	test("T1 T2 Synthetic", synthetic, playAll)
	if recorded := Real(t); recorded != nil && !testing.Short() {
		test("T1 T2 Recorded", recorded, playAll)
	}
	test("T1 Topics", synthetic, playTopics)
	test("T3 LateServer", synthetic, playLate)
	test("T3 Restart", synthetic, playRestarted)
	test("T3 Interrupted", synthetic, playInterrupted)
	test("T5 Cancel", synthetic, cancelRuns)
}

// session is one server with the messages that it has sent.
type session struct {
	rec    *Recording
	opt    Options
	server Server
	sent   map[string][]item // by topic, since the last start
}

// item identifies the content of a message.
type item struct {
	hash uint64
	size int
	log  int64
}

func (s *session) itemOf(m *transport.Message) item {
	it := item{hash: xxh3.Hash(m.Data), size: len(m.Data)}
	if s.opt.LogTimes {
		it.log = m.Log
	}
	return it
}

// startServer starts the server and clears the list of sent messages.
func (s *session) startServer(t *testing.T) {
	t.Helper()
	s.sent = map[string][]item{}
	if err := s.server.Start(); err != nil {
		t.Fatalf("start of the publisher: %v", err)
	}
}

func (s *session) stopServer(t *testing.T) {
	t.Helper()
	if err := s.server.Stop(); err != nil {
		t.Fatalf("stop of the publisher: %v", err)
	}
}

func (s *session) publishMessage(t *testing.T, i int) {
	t.Helper()
	m := &s.rec.Messages[i]
	s.sent[m.Channel.Topic] = append(s.sent[m.Channel.Topic], s.itemOf(m))
	if err := s.server.Publish(i); err != nil {
		t.Fatalf("message %d of %s: %v", i, m.Channel.Topic, err)
	}
}

// playRange publishes messages at the pace of the recording times the speed. It returns the number of
// sent messages of each topic.
func (s *session) playRange(t *testing.T, from, to int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	begin, base := time.Now(), s.rec.Messages[from].Log
	for i := from; i < to; i++ {
		m := &s.rec.Messages[i]
		offset := time.Duration(float64(m.Log-base) / s.opt.Speed)
		time.Sleep(time.Until(begin.Add(offset)))
		s.publishMessage(t, i)
		counts[m.Channel.Topic]++
	}
	return counts
}

// awaitConnection publishes the first message of each topic again and again, until the listener receives
// one of each.
func (s *session) awaitConnection(t *testing.T, l *listener) {
	t.Helper()
	before := map[string]int{}
	for topic := range l.topics {
		before[topic] = len(l.received(topic))
	}
	deadline := time.Now().Add(receiveLimit)
	for {
		done := map[string]bool{}
		missing := ""
		for i := range s.rec.Messages {
			topic := s.rec.Messages[i].Channel.Topic
			if n, wanted := before[topic]; wanted && !done[topic] && len(l.received(topic)) == n {
				missing = topic
				s.publishMessage(t, i)
			}
			done[topic] = true
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no message was received in %v", missing, receiveLimit)
		}
		l.checkRunning(t)
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitMessages waits until the listener has received the messages since the last start. counts is
// the number of messages of each topic after the connection, which must not be lost. skip is the
// number of messages of each topic that were received before the start.
func (s *session) awaitMessages(t *testing.T, l *listener, counts, skip map[string]int) {
	t.Helper()
	deadline := time.Now().Add(receiveLimit)
	for topic := range l.topics {
		for {
			got := l.received(topic)[skip[topic]:]
			err := s.compareItems(s.sent[topic], got, counts[topic])
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: %v", topic, err)
				break
			}
			l.checkRunning(t)
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// compareItems checks that messages were received in order and once. The last ones of sent must not be
// lost.
func (s *session) compareItems(sent, got []item, last int) error {
	if s.opt.MinShare == 0 {
		return matchSuffix(sent, got, last)
	}
	matched, err := matchSubsequence(sent, got)
	if need := int(s.opt.MinShare * float64(last)); err == nil && matched < need {
		err = fmt.Errorf("received %d messages of %d, want %d", matched, last, need)
	}
	return err
}

// matchSuffix checks that got is the end of sent, with at least its last messages.
func matchSuffix(sent, got []item, last int) error {
	if len(got) < last || len(got) > len(sent) {
		return fmt.Errorf("received %d messages, want %d to %d", len(got), last, len(sent))
	}
	for i, it := range sent[len(sent)-len(got):] {
		if got[i] != it {
			return fmt.Errorf("received message %d of %d is %+v, want %+v", i, len(got), got[i], it)
		}
	}
	return nil
}

// matchSubsequence checks that got are some messages of sent in the same order. It returns their
// number.
func matchSubsequence(sent, got []item) (int, error) {
	at := 0
	for i, it := range got {
		for at < len(sent) && sent[at] != it {
			at++
		}
		if at == len(sent) {
			return i, fmt.Errorf(
				"received message %d of %d was not sent after the ones before it: %+v",
				i, len(got), it)
		}
		at++
	}
	return len(got), nil
}

// listener runs a transport and keeps the received messages.
type listener struct {
	session *session
	topics  map[string]bool
	cancel  context.CancelFunc
	ended   chan struct{} // closed when Run has returned
	err     error         // of Run
	begin   int64         // ns since the Unix epoch

	running  atomic.Int32 // calls of receive
	returned atomic.Bool  // whether Run has returned
	lock     sync.Mutex
	items    map[string][]item
	faults   []string
	channels map[string]*transport.Channel
}

// startListener runs the transport of the server. No topics means all topics of the recording.
func (s *session) startListener(t *testing.T, topics ...string) *listener {
	t.Helper()
	l := &listener{
		session:  s,
		topics:   map[string]bool{},
		ended:    make(chan struct{}),
		begin:    time.Now().UnixNano(),
		items:    map[string][]item{},
		channels: map[string]*transport.Channel{},
	}
	if len(topics) == 0 {
		for _, c := range s.rec.Channels {
			topics = append(topics, c.Topic)
		}
	}
	for _, c := range s.rec.Channels {
		l.channels[c.Topic] = c
	}
	for _, topic := range topics {
		if l.channels[topic] != nil {
			l.topics[topic] = true
		}
	}
	tr, err := transport.Open(s.server.URI())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() {
		defer close(l.ended)
		l.err = tr.Run(ctx, topics, l.receive)
		l.returned.Store(true)
	}()
	t.Cleanup(func() { l.endRun(t) })
	return l
}

func (l *listener) receive(m *transport.Message) {
	if l.running.Add(1) != 1 {
		l.recordFault("transport.T2: receive was called by two goroutines at a time")
	}
	defer l.running.Add(-1)
	if l.returned.Load() {
		l.recordFault("transport.T5: receive was called after Run returned")
	}
	if now := time.Now().UnixNano(); m.Arrival < l.begin || m.Arrival > now {
		l.recordFault("arrival time %d is not between %d and %d", m.Arrival, l.begin, now)
	}
	topic := m.Channel.Topic
	want := l.channels[topic]
	if !l.topics[topic] {
		l.recordFault("a message of topic %q, which was not requested", topic)
		return
	}
	opt, got := &l.session.opt, *m.Channel
	expected := *want
	if opt.NoSchemas {
		expected.Schema, expected.SchemaEncoding = got.Schema, got.SchemaEncoding
	}
	if opt.NoTypes {
		expected.Encoding = got.Encoding
	}
	if got != expected {
		l.recordFault("channel of %s: got %.300q, want %.300q", topic, fmt.Sprint(got),
			fmt.Sprint(expected))
	}
	it := l.session.itemOf(m)
	l.lock.Lock()
	l.items[topic] = append(l.items[topic], it)
	l.lock.Unlock()
}

// recordFault records a violation of the contract.
func (l *listener) recordFault(format string, args ...any) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(l.faults) < 10 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// received returns the messages of a topic so far.
func (l *listener) received(topic string) []item {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.items[topic]
}

// counts returns the number of received messages of each topic.
func (l *listener) counts() map[string]int {
	l.lock.Lock()
	defer l.lock.Unlock()
	out := map[string]int{}
	for topic, items := range l.items {
		out[topic] = len(items)
	}
	return out
}

// checkRunning ends the test if Run has returned.
func (l *listener) checkRunning(t *testing.T) {
	t.Helper()
	select {
	case <-l.ended:
		t.Fatalf("transport.T5: Run returned before its context was canceled: %v", l.err)
	default:
	}
}

// endRun cancels Run, checks its error, and reports the recorded faults.
func (l *listener) endRun(t *testing.T) {
	t.Helper()
	l.cancel()
	select {
	case <-l.ended:
	case <-time.After(receiveLimit):
		t.Fatalf(
			"transport.T5: Run did not return after its context was canceled:\n%s",
			allStacks(),
		)
	}
	if !errors.Is(l.err, context.Canceled) {
		t.Errorf("transport.T5: Run returned %v, want %v", l.err, context.Canceled)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	l.faults = nil
}

// allStacks returns the stacks of all goroutines.
func allStacks() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}

// playAll plays the whole recording.
func playAll(t *testing.T, s *session) {
	s.startServer(t)
	l := s.startListener(t)
	s.awaitConnection(t, l)
	counts := s.playRange(t, 0, len(s.rec.Messages))
	s.awaitMessages(t, l, counts, nil)
	l.endRun(t)
}

// playTopics requests some topics, and a topic that does not exist.
func playTopics(t *testing.T, s *session) {
	topics := []string{"/absent"}
	for i, c := range s.rec.Channels {
		if i%2 == 1 {
			topics = append(topics, c.Topic)
		}
	}
	s.startServer(t)
	l := s.startListener(t, topics...)
	s.awaitConnection(t, l)
	counts := s.playRange(t, 0, len(s.rec.Messages)/2)
	s.awaitMessages(t, l, counts, nil)
	l.endRun(t)
}

// playLate starts the server after Run.
func playLate(t *testing.T, s *session) {
	l := s.startListener(t)
	time.Sleep(300 * time.Millisecond)
	l.checkRunning(t)
	s.startServer(t)
	s.awaitConnection(t, l)
	s.awaitMessages(t, l, s.playRange(t, 0, len(s.rec.Messages)/4), nil)
	l.endRun(t)
}

// playRestarted restarts the server after everything that it sent was received.
func playRestarted(t *testing.T, s *session) {
	l := s.startListener(t)
	for run := range 3 {
		before := l.counts()
		s.startServer(t)
		s.awaitConnection(t, l)
		n := len(s.rec.Messages)
		s.awaitMessages(t, l, s.playRange(t, run*n/3, (run+1)*n/3), before)
		s.stopServer(t)
		l.checkRunning(t)
	}
	l.endRun(t)
}

// playInterrupted kills the server while messages may be in transit.
func playInterrupted(t *testing.T, s *session) {
	all := map[string][]item{}
	l := s.startListener(t)
	n := len(s.rec.Messages)
	for run := range 3 {
		s.startServer(t)
		s.awaitConnection(t, l)
		s.playRange(t, run*n/4, (run+1)*n/4)
		s.stopServer(t)
		for topic, items := range s.sent {
			all[topic] = append(all[topic], items...)
		}
	}
	before := l.counts()
	s.startServer(t)
	s.awaitConnection(t, l)
	s.playRange(t, 3*n/4, n)
	for topic, items := range s.sent {
		all[topic] = append(all[topic], items...)
		last := func() bool {
			got := l.received(topic)
			return len(got) > before[topic] && got[len(got)-1] == items[len(items)-1]
		}
		deadline := time.Now().Add(receiveLimit)
		for s.opt.MinShare == 0 && !last() && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.endRun(t)
	for topic := range l.topics {
		got := l.received(topic)
		if len(got) <= before[topic] {
			t.Errorf("%s: no message was received after the last restart", topic)
		}
		if _, err := matchSubsequence(all[topic], got); err != nil {
			t.Errorf("%s: %v", topic, err)
		}
	}
}

// cancelRuns cancels Run in different states. No goroutine and no open file may remain.
func cancelRuns(t *testing.T, s *session) {
	cycle := func() {
		l := s.startListener(t)
		l.endRun(t) // at once
		l = s.startListener(t)
		time.Sleep(150 * time.Millisecond)
		l.endRun(t) // while it waits for the server
		s.startServer(t)
		l = s.startListener(t)
		s.awaitConnection(t, l)
		time.Sleep(50 * time.Millisecond)
		l.endRun(t) // while nothing is sent
		l = s.startListener(t)
		s.awaitConnection(t, l)
		s.playRange(t, 0, len(s.rec.Messages)/8)
		l.endRun(t) // while messages may be in transit
		s.stopServer(t)
	}
	cycle()
	time.Sleep(100 * time.Millisecond)
	routines, files := runtime.NumGoroutine(), openFiles()
	cycle()
	cycle()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > routines || openFiles() > files {
		if time.Now().After(deadline) {
			t.Fatalf("transport.T5: %d goroutines and %d open files before, %d and %d after:\n%s",
				routines, files, runtime.NumGoroutine(), openFiles(), allStacks())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// openFiles returns the number of open files of this process, or 0 if the system does not list
// them.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}
