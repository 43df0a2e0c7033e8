package rosbag2

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// flat returns the leaves of a decoded message: path → its values in order, numbers as float64.
func flat(path string, v any, out map[string][]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == "structure_needs_at_least_one_member" || strings.ToUpper(k) == k && len(k) > 3 {
				continue // a filler or a constant
			}
			p := k
			if path != "" {
				p = path + "." + k
			}
			flat(p, x, out)
		}
	case []any:
		for _, x := range v {
			flat(path, x, out)
		}
	case bool:
		if v {
			out[path] = append(out[path], 1.0)
		} else {
			out[path] = append(out[path], 0.0)
		}
	default:
		out[path] = append(out[path], v)
	}
}

// row reads a row of any stream as values.
func row(ctx context.Context, ds robocache.Dataset, f *robocache.Feature, k int) ([]any, error) {
	rows := []robocache.Row{{Index: k}}
	if f.Kind == robocache.KindText {
		text, err := ds.Text(ctx, f.Key, rows)
		if err != nil {
			return nil, err
		}
		var list []any
		if strings.HasPrefix(text[0], "[") && json.Unmarshal([]byte(text[0]), &list) == nil {
			return list, nil
		}
		return []any{text[0]}, nil
	}
	var data []byte
	var err error
	if f.Ragged() {
		data, _, err = robocache.GatherRagged(ctx, ds, f.Key, rows)
	} else {
		data = make([]byte, f.RowBytes())
		err = ds.Gather(ctx, f.Key, rows, data)
	}
	var out []any
	for _, v := range robocache.Float64s(nil, f.DType, data) {
		out = append(out, v)
	}
	return out, err
}

// TestRealMessages compares messages of real recorders with the values that rosbags or
// mcap-ros2-support decode, for both storages (ros2.R1).
func TestRealMessages(t *testing.T) {
	base := realdata.Path(t, "rosbag2")
	text, err := os.ReadFile(filepath.Join(base, "oracle", "decoded.json"))
	if err != nil {
		t.Fatal(err)
	}
	var oracle map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &oracle); err != nil {
		t.Fatal(err)
	}
	// rosbags cannot read the events in the mcap file. They are from another run with the same
	// values except timestamps.
	leaves := 0
	for name, topics := range oracle {
		if topics["rosbags_error"] != nil {
			continue
		}
		ds, err := robocache.Open(
			t.Context(),
			filepath.Join(base, name),
			robocache.OpenOptions{Format: Name, Options: map[string]string{"clock": "log"}},
		)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for topic, raw := range topics {
			var o struct {
				Type     string
				Messages []struct {
					Time  int64
					Value map[string]any
				}
			}
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			key := strings.ReplaceAll(strings.TrimPrefix(topic, "/"), "/", ".")
			for k, m := range o.Messages {
				want := map[string][]any{}
				flat("", m.Value, want)
				for path, values := range want {
					f := ds.Info().Feature(key + "." + path)
					if f == nil && path == "data" {
						f = ds.Info().Feature(key)
					}
					if f == nil {
						if strings.HasPrefix(path, "stamp.") ||
							strings.HasPrefix(path, "header.stamp") {
							continue // the time of the row
						}
						t.Errorf("%s: no stream %s.%s", name, key, path)
						continue
					}
					got, err := row(t.Context(), ds, f, k)
					if err != nil {
						t.Fatalf("%s: %s: %v", name, f.Key, err)
					}
					if times, err := ds.Times(t.Context(), 0, f.Key); err != nil ||
						times[k] != m.Time {
						t.Errorf(
							"%s: %s: row %d at %d, not %d (%v)",
							name,
							f.Key,
							k,
							times[k],
							m.Time,
							err,
						)
					}
					leaves++
					if !equal(got, values) {
						t.Errorf("%s: %s, row %d: %v, not %v", name, f.Key, k, got, values)
					}
				}
			}
		}
		ds.Close()
	}
	if leaves < 300 {
		t.Errorf("only %d leaves compared", leaves)
	}
}

// equal compares values. The oracle prints float32 in the shortest form.
func equal(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		x, ok1 := a[k].(float64)
		y, ok2 := b[k].(float64)
		if ok1 && ok2 {
			if y < 0 && x == y+256 {
				continue // rosbags reads octets as signed
			}
			if x != y && float32(x) != float32(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
				return false
			}
		} else if fmt.Sprint(a[k]) != fmt.Sprint(b[k]) {
			return false
		}
	}
	return true
}

// TestServiceEvents checks that events of a service are read. Their schema is the .srv text, which
// rosbags cannot read.
func TestServiceEvents(t *testing.T) {
	dir := realdata.Path(t, "rosbag2/tests/mcap/bag_with_topics_and_service_events")
	ds, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	f := ds.Info().Feature("test_service1._service_event.info.sequence_number")
	if f == nil {
		t.Fatal("no such stream")
	}
	var got []any
	for k := range 4 {
		v, err := row(t.Context(), ds, f, k)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v...)
	}
	if fmt.Sprint(got) != "[1 1 2 2]" {
		t.Error(got)
	}
}

// TestOtherSerialization checks that an error names a serialization other than CDR.
func TestOtherSerialization(t *testing.T) {
	for _, name := range []string{
		"rosbag2/tests/sqlite3/wrong_rmw_test",
		"rosbag2/tests/mcap/wrong_rmw_test",
	} {
		ds, err := robocache.Open(t.Context(), realdata.Path(t, name), robocache.OpenOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "wrong_format") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		said := false
		for _, f := range ds.Info().Findings {
			said = said || f.Code == "unsupported-topic"
			if strings.Contains(name, "mcap") && f.Code != "empty-episode" &&
				!strings.Contains(f.Message, "wrong_format") {
				t.Errorf("%s: %v", name, f)
			}
		}
		if !said || len(ds.Info().Features) > 0 {
			t.Errorf(
				"%s: %d features, findings %v",
				name,
				len(ds.Info().Features),
				ds.Info().Findings,
			)
		}
		ds.Close()
	}
}

// TestStubDefinitions checks that incomplete definitions ("uint8 level" for a Log) are detected by
// the messages, which are then decoded with the common types as in the mcap file.
func TestStubDefinitions(t *testing.T) {
	open := func(name string) robocache.Dataset {
		ds, err := robocache.Open(
			t.Context(),
			realdata.Path(t, name),
			robocache.OpenOptions{Options: map[string]string{"clock": "log"}},
		)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ds.Close() })
		return ds
	}
	a, b := open("rosbag2/py/sqlite3/talker"), open("rosbag2/py/mcap/talker")
	said := map[string]bool{}
	for _, f := range a.Info().Findings {
		said[f.Code] = true
	}
	if !said["schema-does-not-fit"] || !said["schema-unreadable"] {
		t.Errorf("findings %v", a.Info().Findings)
	}
	streams := 0
	for k := range b.Info().Features {
		f := &b.Info().Features[k]
		if !strings.HasPrefix(f.Key, "rosout.") {
			continue
		}
		streams++
		g := a.Info().Feature(f.Key)
		if g == nil {
			t.Errorf("no stream %s", f.Key)
			continue
		}
		for r := range 10 {
			x, err1 := row(t.Context(), a, g, r)
			y, err2 := row(t.Context(), b, f, r)
			if err1 != nil || err2 != nil || !equal(x, y) {
				t.Errorf("%s, row %d: %v, not %v (%v, %v)", f.Key, r, x, y, err1, err2)
			}
		}
	}
	if streams < 6 {
		t.Errorf("only %d streams", streams)
	}
}
