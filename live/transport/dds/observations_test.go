package dds

import (
	"context"
	"crypto/sha256"
	"os/exec"
	"testing"

	"github.com/goatnote-inc/robocache/live/livetest"
	"github.com/goatnote-inc/robocache/live/transport"
	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

// recordedTimes replaces the times of messages, which rclpy sets, by those of a recording.
type recordedTimes struct {
	transport.Transport
	logs map[[32]byte]int64 // by topic and data
}

func (r recordedTimes) Run(
	ctx context.Context, topics []string, receive func(*transport.Message),
) error {
	return r.Transport.Run(ctx, topics, func(m *transport.Message) {
		logged := *m
		logged.Log = r.logs[messageKey(m)]
		receive(&logged)
	})
}

func messageKey(m *transport.Message) [32]byte {
	return sha256.Sum256(append([]byte(m.Channel.Topic+"\n"), m.Data...))
}

func TestObservationsEqualThoseOfALoader(t *testing.T) {
	if testing.Short() {
		t.Skip("plays recordings")
	}
	python, domain := rosPython(t)
	livetest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		server := serveRecording(t, python, domain, rec)
		source, err := transport.Open(server.URI())
		if err != nil {
			t.Fatal(err)
		}
		logs := map[[32]byte]int64{}
		for i := range rec.Messages {
			logs[messageKey(&rec.Messages[i])] = rec.Messages[i].Log
		}
		transport.Register("recorded-dds", func(string) (transport.Transport, error) {
			return recordedTimes{source, logs}, nil
		})
		return renamedServer{server}
	})
}

// renamedServer is a server whose transport has recordedTimes.
type renamedServer struct{ transporttest.Server }

func (s renamedServer) URI() string { return "recorded-" + s.Server.URI() }

// serveRecording returns a server that publishes a recording with rclpy.
func serveRecording(
	t *testing.T, python, domain string, rec *transporttest.Recording,
) transporttest.Server {
	if exec.Command(python, "-c", "import tf2_msgs.msg").Run() != nil {
		t.Skip("no tf2_msgs in .build/ros; scripts/engines.sh ros builds it")
	}
	for i := range rec.Messages {
		m := &rec.Messages[i]
		for len(m.Data)%4 != 0 { // DDS transmits multiples of 4 bytes
			m.Data = append(m.Data, 0)
		}
	}
	return transporttest.NewProcess(t, "dds://"+domain, func() *exec.Cmd {
		return exec.Command(python, "../../../python/tests/ros_publisher.py", rec.Path, "--orders")
	})
}
