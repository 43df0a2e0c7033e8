package dds

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/live/transport"
)

const (
	// MaxMessage is the largest size of a message in bytes.
	MaxMessage = 64 << 20
	// MaxQueue is the largest size in bytes of all messages that wait for receive.
	MaxQueue = 256 << 20

	historyDepth   = 64   // messages that a reader holds until its callback takes them
	sampleOverhead = 128  // bytes that a message in the queue takes beside its payload
	batchSize      = 16   // messages that are taken at once
	maxReaders     = 24   // per topic, for its types and classes of offers
	maxWriters     = 4096 // publishers that are remembered
	maxName        = 512  // bytes of the names of topics and types

	// The settings of Cyclone DDS.
	limits = "<CycloneDDS><Domain><Internal><MaxSampleSize>64 MiB</MaxSampleSize>" +
		"<SocketReceiveBufferSize max=\"16 MiB\"/></Internal></Domain></CycloneDDS>"
	// localOnly finds publishers that ROS_AUTOMATIC_DISCOVERY_RANGE restricts to this machine.
	localOnly = "<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast></General>" +
		"<Discovery><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32" +
		"</MaxAutoParticipantIndex><Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery>" +
		"</Domain></CycloneDDS>"
)

func init() { transport.Register("dds", openDomain) }

// domainTransport receives from one DDS domain. Each Run has a participant of its own.
type domainTransport struct {
	transport.Errors
	domain uint32
}

func openDomain(uri string) (transport.Transport, error) {
	text, query, _ := strings.Cut(strings.TrimPrefix(uri, "dds://"), "?")
	domain, err := strconv.ParseUint(text, 10, 32)
	if err != nil || domain > 232 || query != "" && query != "arrival=log" {
		return nil, robocache.Misuse("live dds", nil, "").
			Expected("dds://DOMAIN with a domain from 0 to 232, for example dds://0", uri)
	}
	return &domainTransport{domain: uint32(domain)}, nil
}

// Run implements transport.Transport.
func (t *domainTransport) Run(
	ctx context.Context, topics []string, receive func(*transport.Message),
) (err error) {
	defer crash.Recover("live dds", &err)
	c, err := loadCyclone()
	if err != nil {
		return err
	}
	participant, err := c.joinDomain(t.domain)
	if err != nil {
		return err
	}
	defer c.leaveDomain(t.domain, participant)
	s := newSession(c, participant, topics)
	s.receive, s.report = receive, t.Recovered
	defer s.releaseAll()
	return s.passMessages(ctx)
}

// domains holds the handles of the domains that this package created in this process. Only one
// domain of a number can exist in a process.
var (
	domainLock sync.Mutex
	domains    = map[uint32]int32{}
)

// joinDomain creates a participant, and the domain if the process has none of this number.
func (c *cyclone) joinDomain(domain uint32) (int32, error) {
	domainLock.Lock()
	defer domainLock.Unlock()
	switch handle := c.createDomain(domain, domainSettings()); {
	case handle > 0:
		domains[domain] = handle
	case handle != domainExists:
		return 0, c.errorOf("join domain "+strconv.Itoa(int(domain)), handle)
	}
	participant := c.createParticipant(domain, 0, 0)
	if participant < 0 {
		c.removeUnused(domain)
		return 0, c.errorOf("create a participant", participant)
	}
	return participant, nil
}

// domainSettings returns the configuration of a domain. CYCLONEDDS_URI comes last, so that it overrides
// the others.
func domainSettings() string {
	list := []string{limits}
	if os.Getenv("ROS_AUTOMATIC_DISCOVERY_RANGE") == "LOCALHOST" ||
		os.Getenv("ROS_LOCALHOST_ONLY") == "1" {
		list = append(list, localOnly)
	}
	if uri := os.Getenv("CYCLONEDDS_URI"); uri != "" {
		list = append(list, uri)
	}
	return strings.Join(list, ",")
}

// leaveDomain deletes the participant with all that it contains, and the domain if nobody uses it.
func (c *cyclone) leaveDomain(domain uint32, participant int32) {
	domainLock.Lock()
	defer domainLock.Unlock()
	c.remove(participant)
	c.removeUnused(domain)
}

// removeUnused deletes a domain of this package that has no participants. Other code of the
// process can have joined it. Caller must hold domainLock.
func (c *cyclone) removeUnused(domain uint32) {
	if handle, ok := domains[domain]; ok && c.getChildren(handle, nil, 0) <= 0 {
		c.remove(handle)
		delete(domains, domain)
	}
}
