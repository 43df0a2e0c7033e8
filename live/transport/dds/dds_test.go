package dds

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/live/transport"
)

// rosPython returns the Python of .build/ros with Fast DDS restricted to this machine, or skips.
func rosPython(t *testing.T) (python string, domain string) {
	t.Helper()
	if _, err := loadCyclone(); err != nil {
		t.Skip(err)
	}
	python, err := filepath.Abs("../../../.build/ros/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no ROS 2 in .build/ros; scripts/engines.sh ros installs it")
	}
	// Domains above 100 use ephemeral ports.
	domain = strconv.Itoa(1 + rand.IntN(100))
	t.Setenv("ROS_DOMAIN_ID", domain)
	t.Setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
	return python, domain
}

// publisher is a process of testdata/publish.py.
type publisher struct {
	*exec.Cmd
	lines *bufio.Scanner
	stop  io.WriteCloser
}

func publish(t *testing.T, python string, args ...string) *publisher {
	t.Helper()
	cmd := exec.Command(python, append([]string{"testdata/publish.py"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &publisher{cmd, bufio.NewScanner(out), in}
}

// sent returns the checksums of the messages after all are published.
func (p *publisher) sent(t *testing.T) []string {
	t.Helper()
	var sums []string
	for p.lines.Scan() {
		if p.lines.Text() == "done" {
			return sums
		}
		sums = append(sums, p.lines.Text())
	}
	t.Fatalf("the publisher ended after %d messages: %v", len(sums), p.lines.Err())
	return nil
}

// end closes the publisher in order.
func (p *publisher) end(t *testing.T) {
	t.Helper()
	_ = p.stop.Close()
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

// received collects the messages of a Run in the background.
type received struct {
	sync.Mutex
	sums     []string
	messages []transport.Message // without data
	cancel   context.CancelFunc
	result   chan error
}

func run(t *testing.T, domain string, topics ...string) *received {
	t.Helper()
	source, err := transport.Open("dds://" + domain)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &received{cancel: cancel, result: make(chan error, 1)}
	go func() {
		r.result <- source.Run(ctx, topics, func(m *transport.Message) {
			sum := sha256.Sum256(m.Data)
			r.Lock()
			defer r.Unlock()
			r.sums = append(r.sums, hex.EncodeToString(sum[:]))
			copied := *m
			copied.Data = nil
			r.messages = append(r.messages, copied)
		})
	}()
	t.Cleanup(func() { r.end(t) })
	return r
}

func (r *received) end(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		r.result <- err
	case <-time.After(10 * time.Second):
		t.Error("Run did not return after cancellation")
	}
}

// wait returns what was received, after n messages or 20 seconds.
func (r *received) wait(n int) []string {
	for range 2000 {
		r.Lock()
		done := len(r.sums) >= n
		r.Unlock()
		if done {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // for messages too many
	r.Lock()
	defer r.Unlock()
	return slices.Clone(r.sums)
}

func TestMessagesArriveInOrderAsSerialized(t *testing.T) {
	for _, c := range []struct{ kind, topic, offer, typeName, count string }{
		{"joint_state", "/joint_states", "reliable", "sensor_msgs/msg/JointState", "300"},
		{"image", "/camera/color/compressed", "reliable", "sensor_msgs/msg/CompressedImage", "50"},
		{"string", "/text", "reliable", "std_msgs/msg/String", "9"},
		{"transform", "/tf_static", "transient_local", "tf2_msgs/msg/TFMessage", "3"},
		{"joint_state", "/joint_states", "best_effort", "sensor_msgs/msg/JointState", "100"},
	} {
		t.Run(c.kind+" "+c.offer, func(t *testing.T) {
			python, domain := rosPython(t)
			if c.kind == "transform" {
				if exec.Command(python, "-c", "import tf2_msgs.msg").Run() != nil {
					t.Skip("no tf2_msgs in .build/ros")
				}
			}
			before := time.Now().UnixNano()
			p := publish(t, python, c.kind, c.topic, c.offer, c.count, "0")
			var want []string
			if c.offer == "transient_local" {
				want = p.sent(t) // everything is sent before the reader exists
			}
			r := run(t, domain, "/another", c.topic)
			if want == nil {
				want = p.sent(t)
			}
			if got := r.wait(len(want)); !slices.Equal(got, want) {
				t.Fatalf("got %d messages, want %d: %q, want %q", len(got), len(want), got, want)
			}
			for i, m := range r.messages {
				if m.Channel != r.messages[0].Channel {
					t.Fatal("the channel changed")
				}
				if m.Log < before || m.Log > m.Arrival || m.Arrival > time.Now().UnixNano() ||
					i > 0 && m.Log < r.messages[i-1].Log {
					t.Fatalf("message %d: started %d, log %d, arrival %d", i, before, m.Log,
						m.Arrival)
				}
			}
			wanted := transport.Channel{Topic: c.topic, Type: c.typeName, Encoding: "cdr"}
			if got := *r.messages[0].Channel; got != wanted {
				t.Errorf("channel %+v, want %+v", got, wanted)
			}
		})
	}
}

func TestRestartedPublisherIsReceived(t *testing.T) {
	python, domain := rosPython(t)
	r := run(t, domain, "/joint_states")
	var want []string
	for _, offer := range []string{"reliable", "reliable", "best_effort", "transient_local"} {
		p := publish(t, python, "joint_state", "/joint_states", offer, "20",
			strconv.Itoa(len(want)))
		want = append(want, p.sent(t)...)
		if got := r.wait(len(want)); !slices.Equal(got, want) {
			t.Fatalf("%s: got %d messages, want %d", offer, len(got), len(want))
		}
		if offer == "reliable" {
			p.end(t)
		}
	}
	if len(r.messages[0].Channel.Topic) == 0 || r.messages[0].Channel != r.messages[79].Channel {
		t.Error("publishers with different offers have different channels")
	}
}

func TestPublishersWithDifferentOffersAreReceivedOnce(t *testing.T) {
	python, domain := rosPython(t)
	var publishers []*publisher
	for i, offer := range []string{"transient_local", "reliable", "best_effort"} {
		publishers = append(publishers, publish(t, python, "joint_state", "/joint_states", offer,
			"50", strconv.Itoa(50*i)))
	}
	r := run(t, domain, "/joint_states")
	var want []string
	for _, p := range publishers {
		want = append(want, p.sent(t)...)
	}
	got := r.wait(len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %d messages (%d different), want %d", len(got),
			len(slices.Compact(slices.Clone(got))), len(want))
	}
}

// TestFoundPublisherRepeatsNothing interrupts the connection for longer than the leases of both
// sides. They forget and find each other, and the publisher sends its history again.
func TestFoundPublisherRepeatsNothing(t *testing.T) {
	python, domain := rosPython(t)
	// The leases are 2 s instead of 20 s and 10 s.
	t.Setenv("FASTRTPS_DEFAULT_PROFILES_FILE", "testdata/short_lease.xml")
	t.Setenv("CYCLONEDDS_URI", "<CycloneDDS><Domain><Discovery><LeaseDuration>2 s"+
		"</LeaseDuration></Discovery></Domain></CycloneDDS>")
	p := publish(t, python, "joint_state", "/joint_states", "transient_local", "10", "0")
	want := p.sent(t)
	r := run(t, domain, "/joint_states")
	if got := r.wait(len(want)); !slices.Equal(got, want) {
		t.Fatalf("got %d messages, want %d", len(got), len(want))
	}
	interrupt(t, 4*time.Second)
	time.Sleep(10 * time.Second)
	if _, err := io.WriteString(p.stop, "\n"); err != nil {
		t.Fatal(err)
	}
	want = append(want, p.sent(t)...)
	if got := r.wait(len(want)); !slices.Equal(got, want) {
		t.Errorf("got %d messages, want %d", len(got), len(want))
	}
}

// interrupt makes this process deaf and mute in all domains for a time.
func interrupt(t *testing.T, duration time.Duration) {
	t.Helper()
	library, err := cudahost.Dlopen("libddsc.so.0debian")
	if err != nil {
		t.Skip(err)
	}
	address, err := cudahost.Dlsym(library, "dds_domain_set_deafmute")
	if err != nil {
		t.Skip(err)
	}
	for _, handle := range domains {
		if code := cudahost.Call(address, uintptr(handle), 1, 1, uintptr(duration)); code < 0 {
			t.Fatal(code)
		}
	}
}

func TestOversizeMessageIsDropped(t *testing.T) {
	python, domain := rosPython(t)
	r := run(t, domain, "/image")
	p := publish(t, python, "huge_image", "/image", "reliable", "3", "0")
	want := p.sent(t)[1:]
	if got := r.wait(len(want)); !slices.Equal(got, want) {
		t.Errorf("got %d messages, want %d", len(got), len(want))
	}
}

func TestRunEndsWithoutPublishers(t *testing.T) {
	_, domain := rosPython(t)
	before := runtime.NumGoroutine()
	for range 3 {
		first, second := run(t, domain, "/a"), run(t, domain)
		time.Sleep(100 * time.Millisecond)
		first.end(t)
		second.end(t)
	}
	after := runtime.NumGoroutine()
	for range 100 { // the goroutines of the test itself can need some time to end
		if after <= before {
			break
		}
		time.Sleep(10 * time.Millisecond)
		after = runtime.NumGoroutine()
	}
	if after > before {
		t.Errorf("%d goroutines, there were %d", after, before)
	}
	if len(domains) > 0 {
		t.Errorf("domains stay open: %v", domains)
	}
	if threads, err := os.ReadDir("/proc/self/task"); err == nil {
		for _, thread := range threads {
			name, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/comm")
			if strings.HasPrefix(string(name), "recv") {
				t.Error("a receive thread of Cyclone DDS stays")
			}
		}
	}
}

func TestMissingLibraryIsUnsupported(t *testing.T) {
	_, err := loadFrom([]string{"libabsent.so.0"})
	var e *robocache.Error
	if !errors.Is(err, robocache.ErrUnsupported) || !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("got %v", err)
	}
}

func TestWrongSettingsAreAnError(t *testing.T) {
	_, domain := rosPython(t)
	t.Setenv("CYCLONEDDS_URI", "<CycloneDDS><Absent/></CycloneDDS>")
	source, err := transport.Open("dds://" + domain)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Run(t.Context(), nil, nil); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestURIsNameADomain(t *testing.T) {
	for _, uri := range []string{"dds://", "dds://robot", "dds://233", "dds://-1", "dds://0/x", "dds://0?x=1"} {
		if _, err := transport.Open(uri); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: got %v", uri, err)
		}
	}
}

func TestURIsCanSelectTheArrivalTime(t *testing.T) {
	if _, err := transport.Open("dds://0?arrival=log"); err != nil {
		t.Error(err)
	}
}

func TestOnlyMessagesOfROS2HaveATypeName(t *testing.T) {
	for dds, want := range map[string]string{
		"sensor_msgs::msg::dds_::Image_":        "sensor_msgs/msg/Image",
		"std_srvs::srv::dds_::Trigger_Request_": "std_srvs/srv/Trigger_Request",
		"sensor_msgs::msg::dds_::Image":         "",
		"sensor_msgs::Image_":                   "",
		"sensor_msgs::msg::Image_":              "",
		"a::b::dds_::c::d_":                     "",
		"":                                      "",
	} {
		if got := rosType(dds); got != want {
			t.Errorf("%q: got %q, want %q", dds, got, want)
		}
	}
}

func TestFullQueueDropsMessages(t *testing.T) {
	s := &session{}
	n := 0
	for s.reserveQueue(1 << 20) {
		n++
	}
	if n != 255 || !s.dropped.Load() { // the overhead of 255 messages takes the rest
		t.Errorf("the queue has space for %d MiB, dropped %v", n, s.dropped.Load())
	}
	s.queueBytes.Add(-1<<20 - sampleOverhead)
	if !s.reserveQueue(1 << 20) {
		t.Error("the queue stays full")
	}
}
