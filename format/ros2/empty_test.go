package ros2

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestNoMembers checks that a type without members, or with only a timestamp, is a stream of
// events. A lost definition looks the same, but its messages are longer, and a finding reports it.
func TestNoMembers(t *testing.T) {
	events := func(top *Topic) bool {
		f := top.Fields()
		return len(f) == 1 && f[0].Feature.Key == "go" &&
			f[0].Feature.Kind == robocache.KindEvent &&
			slices.Equal(top.Clocks(), []string{"go"})
	}
	for _, c := range []struct {
		name, text string
		msg        []byte
		timestamp  int64
		findings   int
	}{
		{"std_msgs/msg/Empty", "", []byte{0, 1, 0, 0, 0}, 0, 0},
		{"std_msgs/msg/Empty", "", []byte{0, 1, 0, 0}, 0, 0}, // as some writers write it
		{
			"own/msg/Inner",
			"std_msgs/Empty a\n" + line + "MSG: std_msgs/Empty\n",
			[]byte{0, 1, 0, 0, 0},
			0,
			0,
		},
		{
			"own/msg/Now",
			"builtin_interfaces/Time stamp\n" + line + "MSG: builtin_interfaces/Time\nint32 " +
				"sec\nuint32 nanosec\n",
			[]byte{0, 1, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0},
			3e9 + 5,
			0,
		},
		{"own/msg/Lost", "", make([]byte, 12), 0, 1},
	} {
		s, err := ParseSchema("ros2msg", c.name, c.text)
		if err != nil {
			t.Fatal(c.name, err)
		}
		top, err := NewTopic("/go", s, [][]byte{c.msg})
		if err != nil {
			t.Fatal(c.name, err)
		}
		rows := 0
		err = top.Scan(c.msg, func(_, _ int, timestamp int64, stamped bool) {
			if rows++; timestamp != c.timestamp || stamped != (c.timestamp != 0) {
				t.Errorf("%s: timestamp %d %v", c.name, timestamp, stamped)
			}
		})
		if err != nil || rows != 1 || !events(top) || len(top.Findings()) != c.findings {
			t.Errorf("%s: %v, %d rows, %+v, %v", c.name, err, rows, top.Fields(), top.Findings())
			continue
		}
		if text, err := top.Text(c.msg, 0, 0); err != nil || text != "{}" {
			t.Errorf("%s: %q %v", c.name, text, err)
		}
	}
}
