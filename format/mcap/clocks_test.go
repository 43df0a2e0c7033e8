package mcap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/ros2"
)

const epoch = int64(1_770_000_000_000_000_000)

// msg is a message of a test recording.
type msg struct {
	topic, typ string
	log        int64
	data       []byte
}

func record(t *testing.T, path string, list []msg) {
	t.Helper()
	recordIn(t, path, 2048, list)
}

// recordIn is record with a given chunk size.
func recordIn(t *testing.T, path string, chunk int, list []msg) {
	t.Helper()
	var b bytes.Buffer
	w, err := container.NewWriter(
		&b,
		container.WriterOptions{Profile: "ros2", Compression: container.Zstd, Chunk: chunk},
	)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]uint16{}
	for _, m := range list {
		id, ok := ids[m.topic]
		if !ok {
			encoding, schema := "json", uint16(0)
			if text, known := ros2.SchemaText(m.typ); known {
				encoding = "cdr"
				schema, _ = w.Schema(m.typ, "ros2msg", text)
			}
			if id, err = w.Channel(schema, m.topic, encoding, nil); err != nil {
				t.Fatal(err)
			}
			ids[m.topic] = id
		}
		if err := w.Message(&container.Message{
			Channel: id, Log: m.log, Publish: m.log - 5,
			Data: m.data,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

func wrench(timestamp int64, v float64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0, 1, 0, 0}, uint32(timestamp/1e9))
	b = binary.LittleEndian.AppendUint32(b, uint32(timestamp%1e9))
	b = append(b, 1, 0, 0, 0, 0, 0, 0, 0) // an empty frame_id and padding
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	return append(b, make([]byte, 5*8)...)
}

// made returns a recording with one stream per kind of header, and a topic in another encoding.
func made() (list []msg) {
	const typ = "geometry_msgs/msg/WrenchStamped"
	for i := range int64(60) {
		at := epoch + i*100_000_000
		if i >= 30 {
			at += 5_000_000_000
		}
		swapped := at - 1_000_000
		if i%10 == 4 {
			swapped += 110_000_000 // later than the next one
		}
		back := at
		if i >= 40 {
			back -= 2_000_000_000
		}
		list = append(
			list,
			msg{"/good", typ, at, wrench(swapped, float64(i))},
			msg{"/zero", typ, at, wrench(0, float64(i))},
			msg{"/boot", typ, at, wrench(at-epoch+1, float64(i))},
			msg{"/back", typ, at, wrench(back, float64(i))},
			msg{"/other", "x", at, []byte("{}")},
		)
		if i == 10 || i == 20 {
			list = append(
				list,
				msg{
					"/events",
					"std_msgs/msg/String",
					at,
					ros2.EncodeString(nil, []string{"start", "stop"}[i/10-1]),
				},
			)
		}
	}
	return list
}

// TestClocks checks the clock of each stream and that rows are in its order (bag.B2, bag.B5).
func TestClocks(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "x.mcap")
	record(t, path, made())
	for _, scan := range []string{"all", "sample"} {
		ds, err := Open(ctx, path, robocache.OpenOptions{Options: map[string]string{"scan": scan}})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		want := map[string]string{"good": "header", "zero": "log", "boot": "log", "back": "log"}
		if scan == "sample" {
			want["back"] = "header" // its first messages are good
		}
		for _, f := range ds.Info().Features {
			if topic, _, _ := strings.Cut(f.Clock, "."); want[topic] != "" &&
				ds.Clocks(f.Key)[0] != want[topic] {
				t.Errorf("scan=%s %s: %v", scan, f.Key, ds.Clocks(f.Key))
			}
		}
		codes := []string{}
		for _, f := range ds.Info().Findings {
			codes = append(codes, f.Code)
		}
		for _, c := range []string{"header-zero", "header-implausible", "unsupported-topic"} {
			if !slices.Contains(codes, c) {
				t.Errorf("scan=%s: found %v, not %s", scan, codes, c)
			}
		}
		key := ds.Info().Features[slices.IndexFunc(ds.Info().Features, func(f robocache.Feature) bool {
			return f.Clock == "good"
		})].Key
		at, err := ds.Times(ctx, 0, key)
		if err != nil || len(at) != 60 || !slices.IsSorted(at) {
			t.Fatal(len(at), err)
		}
		log, err := ds.TimesBy(ctx, 0, key, "log")
		if err != nil || slices.IsSorted(log) {
			t.Error("rows are not in the header's order", err)
		}
		// A step back that was not detected at opening is an error that names the message.
		if scan == "sample" {
			key := ds.Info().Features[slices.IndexFunc(ds.Info().Features, func(f robocache.Feature) bool {
				return f.Clock == "back"
			})].Key
			_, err := ds.Times(ctx, 0, key)
			var e *robocache.Error
			if !errors.As(err, &e) || !errors.Is(err, robocache.ErrMalformed) ||
				e.Where["index"] != 40 {
				t.Errorf("%v", err)
			}
		}
	}
}

// TestEpisodesBy checks the ways to cut recordings into episodes (bag.B3).
func TestEpisodesBy(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "x.mcap")
	record(t, path, made())
	for how, want := range map[string][]int{
		"file":             {60},
		"gap:3":            {30, 30},
		"events:/events":   {10},
		"table:0-1,6-6.55": {10, 0},
		"steps":            {40, 20},
	} {
		ds, err := Open(
			ctx,
			path,
			robocache.OpenOptions{
				Options: map[string]string{"episodes_by": how, "anchor": "/zero"},
			},
		)
		if err != nil {
			t.Fatal(how, err)
		}
		var got []int
		for i := range ds.Info().Episodes {
			got = append(got, ds.Len(i))
		}
		if how == "table:0-1,6-6.55" {
			got = got[:1] // nothing was recorded in the second span, so it is no episode
			want = want[:1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, not %v", how, got, want)
		}
		ds.Close()
	}
	if _, err := Open(ctx, path,
		robocache.OpenOptions{Options: map[string]string{"episodes_by": "weeks"}}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestBadFile checks that a file of a folder that cannot be opened loses only its episode (bag.B5).
func TestBadFile(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	record(t, filepath.Join(dir, "a_2.mcap"), made())
	record(t, filepath.Join(dir, "a_10.mcap"), made())
	if err := os.WriteFile(filepath.Join(dir, "a_1.mcap"), []byte("no recording"), 0o666); err !=
		nil {
		t.Fatal(err)
	}
	ds, err := Open(ctx, dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if ds.Info().Episodes != 3 || ds.Recording(1) != "a_2.mcap" || ds.Len(0) != 0 ||
		ds.Len(2) == 0 {
		t.Errorf("%+v", ds.Info())
	}
	if _, err := ds.Episode(ctx, 0); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	if _, err := Open(ctx, dir,
		robocache.OpenOptions{Options: map[string]string{"damaged": "error"}}); !errors.Is(err,
		robocache.ErrMalformed) {
		t.Error(err)
	}
}
