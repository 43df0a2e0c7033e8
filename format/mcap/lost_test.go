package mcap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
)

// numbered writes messages of two topics with the given sequence numbers, and an attachment.
func numbered(t testing.TB, a, b []uint32) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := foxglove.NewWriter(
		&out,
		&foxglove.WriterOptions{
			Chunked:     true,
			ChunkSize:   200,
			Compression: foxglove.CompressionZSTD,
			IncludeCRC:  true,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(w.WriteHeader(&foxglove.Header{Profile: "ros2"}))
	must(
		w.WriteSchema(
			&foxglove.Schema{
				ID:       1,
				Name:     "std_msgs/msg/Float64",
				Encoding: "ros2msg",
				Data:     []byte("float64 data"),
			},
		),
	)
	for c, topic := range []string{"/a", "/b"} {
		must(
			w.WriteChannel(
				&foxglove.Channel{
					ID:              uint16(c + 1),
					SchemaID:        1,
					Topic:           topic,
					MessageEncoding: "cdr",
				},
			),
		)
	}
	for k := range max(len(a), len(b)) {
		for c, seq := range [][]uint32{a, b} {
			if k < len(seq) {
				data := append([]byte{0, 1, 0, 0}, binary.LittleEndian.AppendUint64(nil, 0)...)
				at := uint64(1e18) + uint64(k)*1e7 + uint64(c)
				must(
					w.WriteMessage(
						&foxglove.Message{
							ChannelID:   uint16(c + 1),
							Sequence:    seq[k],
							LogTime:     at,
							PublishTime: at,
							Data:        data,
						},
					),
				)
			}
		}
	}
	must(
		w.WriteAttachment(
			&foxglove.Attachment{
				Name:      "robot.urdf",
				MediaType: "text/xml",
				DataSize:  30,
				Data:      strings.NewReader(strings.Repeat("urdf ", 6)),
			},
		),
	)
	must(w.Close())
	return out.Bytes()
}

func examine(t *testing.T, b []byte, code string) (out []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.mcap")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ds, err := Open(context.Background(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	found, err := ds.Diagnose(context.Background(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Code == code {
			out = append(out, fmt.Sprintf("%v %v %d", f.Where["stream"], f.Where["row"], f.Count))
		}
	}
	return out
}

func row(from, to uint32, without ...uint32) (out []uint32) {
	for v := from; v != to; v++ {
		keep := true
		for _, w := range without {
			keep = keep && v != w
		}
		if keep {
			out = append(out, v)
		}
	}
	return out
}

// TestLostMessages checks that jumps in sequence numbers are reported as lost messages. It also
// checks cases that are no loss: late messages, a restarted sender, overflow, constant numbers, and
// numbers that one recorder counted over all topics.
func TestLostMessages(t *testing.T) {
	odd, even := make([]uint32, 40), make([]uint32, 40)
	for k := range odd {
		odd[k], even[k] = uint32(2*k), uint32(2*k+1)
	}
	for _, c := range []struct {
		name string
		a, b []uint32
		want string
	}{
		{"whole", row(0, 40), row(5, 45), ""},
		{"none kept", make([]uint32, 40), make([]uint32, 40), ""},
		{"jumps", row(0, 40, 7, 8, 9, 30), row(0, 40), "a 7 4"},
		{"wraps", row(1<<32-20, 20, 1<<32-1, 0), row(0, 40), "a 19 2"},
		{"anew", append(row(500, 520), row(0, 20)...), row(0, 40), ""},
		{"late", append(append(row(0, 10), 11, 12, 10), row(13, 40)...), row(0, 40), ""},
		{"one count", odd, even, ""},
		{
			"one count that lacks some",
			odd[:38],
			append(even[:20:20], even[22:38]...),
			"<nil> <nil> 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(examine(t, numbered(t, c.a, c.b), "lost-messages"), ", "); got !=
				c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

// TestStride checks that evenly spaced sequence numbers, of which fewer than half are present, are
// reported once as a filter and not as a loss. One long gap is a loss.
func TestStride(t *testing.T) {
	third, uneven := make([]uint32, 40), make([]uint32, 40)
	for k := range third {
		third[k], uneven[k] = uint32(3*k), uint32(3*k+k%2)
	}
	for _, c := range []struct {
		name         string
		a            []uint32
		lost, stride string
	}{
		{"every third", third, "", "a <nil> 40"},
		{"about every third", uneven, "", "a <nil> 40"},
		{"a long gap", append(row(0, 20), row(300, 320)...), "a 20 280", ""},
		{"every other lost for a while", append(row(0, 25), 26, 28, 30, 32), "a 25 4", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := numbered(t, c.a, row(0, 40))
			lost, stride := strings.Join(examine(t, b, "lost-messages"), ", "),
				strings.Join(examine(t, b, "numbers-stride"), ", ")
			if lost != c.lost || stride != c.stride {
				t.Errorf("%q and %q, not %q and %q", lost, stride, c.lost, c.stride)
			}
		})
	}
}

// TestSums checks that a flipped byte outside all messages is found by the checksums of the data
// section and of the attachment.
func TestSums(t *testing.T) {
	b := numbered(t, row(0, 20), row(0, 20))
	if got := examine(t, b, "check-sum"); len(got) != 0 {
		t.Errorf("of a whole file: %v", got)
	}
	at := bytes.Index(b, []byte("urdf urdf"))
	b[at+3] ^= 1
	if got := examine(t, b, "check-sum"); len(got) != 2 {
		t.Errorf("data section and attachment: %v", got)
	}
}

// TestEmptyEpisode checks that a recording without messages is an episode without rows, and that a
// finding reports it.
func TestEmptyEpisode(t *testing.T) {
	if got := examine(t, numbered(t, nil, nil), "empty-episode"); len(got) != 1 {
		t.Error(got)
	}
	if got := examine(t, numbered(t, row(0, 3), nil), "empty-episode"); len(got) != 0 {
		t.Error(got)
	}
}

// TestClosed checks that reading a closed dataset is a typed error.
func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.mcap")
	if err := os.WriteFile(path, numbered(t, row(0, 3), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	ds, err := Open(context.Background(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ds.Close()
	if err := ds.Gather(context.Background(), "a", []robocache.Row{{}},
		make([]byte, 8)); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}
