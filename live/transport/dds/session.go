package dds

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/live/transport"
)

// session is the state of one Run. A callback on the threads of Cyclone DDS moves messages from the
// readers to a queue. Run passes them on.
type session struct {
	*cyclone
	participant int32
	receive     func(*transport.Message)
	report      func(error)

	discovery     *reader              // receives the publishers in the domain
	readers       map[string][]*reader // by topic
	writers       map[[16]byte]*writer // by identity, which survives a lost connection
	byHandle      map[uint64]*writer   // by handle, which does not
	endpoints     [batchSize]*endpoint
	endpointInfos [batchSize]sampleInfo
	payloadAt     vector
	message       transport.Message

	wake       chan struct{} // holds a token after the queue or the publishers changed
	queueBytes atomic.Int64  // size of the messages in queue and batch
	dropped    atomic.Bool   // whether a message was dropped, because the queue was full
	queueLock  sync.Mutex
	queue      []sample // protected by queueLock
	batch      []sample // that Run passes on
}

// reader receives the messages of all publishers of a topic with one type and one class of offers.
type reader struct {
	*session
	entity                   int32
	key                      uintptr            // in readersByKey
	channel                  *transport.Channel // nil for the reader of publishers
	reliable, transientLocal bool

	// Memory of the callback. Cyclone DDS does not call it from two threads at a time.
	samples [batchSize]uintptr
	infos   [batchSize]sampleInfo
}

// sample is a message that waits to be passed on.
type sample struct {
	reader          *reader
	data            uintptr // struct ddsi_serdata, which the queue holds a reference to
	size            int64
	publication     uint64 // handle of its publisher
	source, arrival int64  // timestamps
}

// writer is a publisher of a requested topic.
type writer struct {
	reader *reader
	handle uint64
	lost   bool
	latest int64 // latest source timestamp
	resume int64 // latest source timestamp when the publisher was found again; 0 if it never was
}

func newSession(c *cyclone, participant int32, topics []string) *session {
	s := &session{
		cyclone:     c,
		participant: participant,
		readers:     map[string][]*reader{},
		writers:     map[[16]byte]*writer{},
		byHandle:    map[uint64]*writer{},
		wake:        make(chan struct{}, 1),
	}
	s.wake <- struct{}{} // for the publishers that exist already
	for _, topic := range topics {
		s.readers[topic] = nil
	}
	return s
}

// passMessages passes on messages until ctx is canceled.
func (s *session) passMessages(ctx context.Context) error {
	s.discovery = &reader{session: s}
	if err := s.discovery.startReader(publications, 0); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
		s.passQueue(ctx)
		s.discoverPublishers()
		if s.dropped.Swap(false) {
			s.report(robocache.ResourceLimit("live dds", nil,
				"messages were dropped, because %d MiB wait to be received", MaxQueue>>20))
		}
	}
}

// releaseAll deletes the readers, which blocks until their callbacks end, and releases the queue.
func (s *session) releaseAll() {
	s.discovery.stopReader()
	for _, list := range s.readers {
		for _, r := range list {
			r.stopReader()
		}
	}
	for _, m := range s.queue {
		cudahost.Call(s.release, m.data)
	}
}

// readersByKey maps the argument of the callback to a *reader. Memory of Go is not passed, because
// the garbage collector does not see what Cyclone DDS holds.
var (
	readersByKey sync.Map
	lastKey      atomic.Uintptr
)

// onData returns the address of the callback. There is one, because callbacks are never freed.
var onData = sync.OnceValue(func() uintptr {
	return cudahost.Callback(func(entity int32, key uintptr) uintptr {
		if r, ok := readersByKey.Load(key); ok {
			r.(*reader).enqueueMessages(entity)
		}
		return 0
	})
})

// startReader creates the reader of a topic. The callback can be called before it returns.
func (r *reader) startReader(topic int32, qos uintptr) error {
	r.key = lastKey.Add(1)
	readersByKey.Store(r.key, r)
	listener := r.createListener(r.key)
	defer r.deleteListener(listener)
	r.setDataAvailable(listener, onData())
	entity := r.createReader(r.participant, topic, qos, listener)
	if entity < 0 {
		readersByKey.Delete(r.key)
		return r.errorOf("create a reader", entity)
	}
	r.entity = entity
	return nil
}

func (r *reader) stopReader() {
	r.remove(r.entity)
	readersByKey.Delete(r.key)
}

// enqueueMessages moves the messages of an entity to the queue. A thread of Cyclone DDS calls it after each
// message.
func (r *reader) enqueueMessages(entity int32) {
	for r.channel != nil {
		n := cudahost.Call(r.takeCDR, uintptr(entity), uintptr(unsafe.Pointer(&r.samples)),
			batchSize, uintptr(unsafe.Pointer(&r.infos)), anyState)
		now := time.Now().UnixNano()
		for i := range max(n, 0) {
			data, info := r.samples[i], &r.infos[i]
			size := int64(uint32(cudahost.Call(r.sizeOf, data)))
			if !info.valid || size > MaxMessage || !r.reserveQueue(size) {
				cudahost.Call(r.release, data)
				continue
			}
			r.queueLock.Lock()
			r.queue = append(r.queue, sample{r, data, size, info.publication, info.source, now})
			r.queueLock.Unlock()
		}
		if n < batchSize {
			break
		}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// reserveQueue reports whether the queue has space for a message.
func (s *session) reserveQueue(size int64) bool {
	if s.queueBytes.Add(size+sampleOverhead) <= MaxQueue {
		return true
	}
	s.queueBytes.Add(-size - sampleOverhead)
	s.dropped.Store(true)
	return false
}

// passQueue passes on the messages in the queue, until ctx is canceled.
func (s *session) passQueue(ctx context.Context) {
	s.queueLock.Lock()
	s.queue, s.batch = s.batch[:0], s.queue
	s.queueLock.Unlock()
	for i := range s.batch {
		m := &s.batch[i]
		if ctx.Err() == nil && s.isNew(m) {
			s.passMessage(m)
		}
		cudahost.Call(s.release, m.data)
		s.queueBytes.Add(-m.size - sampleOverhead)
	}
}

// isNew reports whether a message belongs to its reader and was not passed on before. Readers of
// other classes receive it too if they ask for less than its publisher offers.
func (s *session) isNew(m *sample) bool {
	w := s.byHandle[m.publication]
	if w == nil {
		// The publisher appeared after the last call of discoverPublishers.
		s.discoverPublishers()
		if w = s.byHandle[m.publication]; w == nil {
			return false
		}
	}
	// A publisher that was lost and found sends its transient local messages again.
	if w.reader != m.reader || m.reader.transientLocal && w.resume > 0 && m.source <= w.resume {
		return false
	}
	w.latest = max(w.latest, m.source)
	return true
}

func (s *session) passMessage(m *sample) {
	v := &s.payloadAt
	cudahost.Call(s.payload, m.data, 0, uintptr(m.size), uintptr(unsafe.Pointer(v)))
	s.message = transport.Message{
		Channel: m.reader.channel,
		Data:    unsafe.Slice(v.base, v.size),
		Log:     max(m.source, 0), // negative if the publisher states no time
		Arrival: m.arrival,
	}
	s.receive(&s.message)
	cudahost.Call(s.releasePayload, m.data, uintptr(unsafe.Pointer(v)))
}

// discoverPublishers registers the publishers that appeared, and marks those that disappeared.
func (s *session) discoverPublishers() {
	for {
		s.endpoints[0] = nil // the library lends the memory
		n := cudahost.Call(
			s.take,
			uintptr(s.discovery.entity),
			uintptr(unsafe.Pointer(&s.endpoints)),
			uintptr(unsafe.Pointer(&s.endpointInfos)),
			batchSize,
			batchSize,
		)
		if n <= 0 {
			return
		}
		for i, info := range s.endpointInfos[:n] {
			if info.valid && info.instanceState == aliveInstance {
				if err := s.addWriter(s.endpoints[i], info.instance); err != nil {
					s.report(err)
				}
			} else if w := s.byHandle[info.instance]; w != nil {
				w.lost = true
			}
		}
		cudahost.Call(s.returnLoan, uintptr(s.discovery.entity),
			uintptr(unsafe.Pointer(&s.endpoints)), uintptr(n))
	}
}

// addWriter registers a publisher if it publishes a requested topic with a type of ROS 2.
func (s *session) addWriter(e *endpoint, handle uint64) error {
	topic, isTopic := strings.CutPrefix(goString(e.topic), "rt/")
	topic = "/" + topic
	typeName := goString(e.typeName)
	if _, requested := s.readers[topic]; !requested || !isTopic || rosType(typeName) == "" {
		return nil
	}
	w := s.writers[e.key]
	if w == nil {
		if len(s.writers) >= maxWriters && s.forgetLost() == 0 {
			return robocache.ResourceLimit("live dds", nil, "more than %d publishers", maxWriters)
		}
		r, err := s.readerOf(topic, typeName, e.qos)
		if err != nil {
			return err
		}
		w = &writer{reader: r}
		s.writers[e.key] = w
	}
	if w.lost {
		w.lost, w.resume = false, w.latest
		delete(s.byHandle, w.handle)
	}
	w.handle = handle
	s.byHandle[handle] = w
	return nil
}

// forgetLost removes the publishers that disappeared and returns how many there were.
func (s *session) forgetLost() int {
	before := len(s.writers)
	for key, w := range s.writers {
		if w.lost {
			delete(s.writers, key)
			delete(s.byHandle, w.handle)
		}
	}
	return before - len(s.writers)
}

// readerOf returns the reader of a topic for a type and an offered quality of service.
func (s *session) readerOf(topic, typeName string, qos unsafe.Pointer) (*reader, error) {
	var reliability, durability int32
	var maxBlocking int64
	r := &reader{session: s}
	r.reliable = s.getReliability(qos, &reliability, &maxBlocking) && reliability >= reliable
	// A best-effort reader receives no history.
	r.transientLocal = r.reliable && s.getDurability(qos, &durability) &&
		durability >= transientLocal
	r.channel = &transport.Channel{Topic: topic, Type: rosType(typeName), Encoding: "cdr"}
	for _, other := range s.readers[topic] {
		if other.channel.Type != r.channel.Type {
			continue
		}
		if other.reliable == r.reliable && other.transientLocal == r.transientLocal {
			return other, nil
		}
		r.channel = other.channel
	}
	if len(s.readers[topic]) == maxReaders {
		return nil, robocache.ResourceLimit("live dds", nil,
			"%s has publishers with too many types or offers; %s is not received", topic, typeName)
	}
	entity := s.createTopic(s.participant, newDescriptor(typeName), "rt"+topic, 0, 0)
	if entity < 0 {
		return nil, s.errorOf("create the topic "+topic, entity)
	}
	wanted := s.createQoS()
	defer s.deleteQoS(wanted)
	if r.reliable {
		s.setReliability(wanted, reliable, 0)
	}
	if r.transientLocal {
		s.setDurability(wanted, transientLocal)
	}
	s.setHistory(wanted, keepLast, historyDepth)
	if err := r.startReader(entity, wanted); err != nil {
		return nil, err
	}
	s.readers[topic] = append(s.readers[topic], r)
	return r, nil
}

// rosType returns the ROS 2 name of a DDS type, or "" if it is no message of ROS 2:
// sensor_msgs::msg::dds_::Image_ is sensor_msgs/msg/Image.
func rosType(name string) string {
	p := strings.Split(name, "::")
	if len(p) != 4 || p[2] != "dds_" || !strings.HasSuffix(p[3], "_") {
		return ""
	}
	return p[0] + "/" + p[1] + "/" + strings.TrimSuffix(p[3], "_")
}

// goString returns the text of a C string, at most maxName bytes.
func goString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for n < maxName && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
