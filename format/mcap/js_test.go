package mcap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

// packages returns a folder with the node_modules that testdata/js pins. They are installed once
// into .build. Without them the test is skipped.
func packages(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("no", tool, "here:", err)
		}
	}
	lock, err := os.ReadFile(filepath.Join("testdata", "js", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	root := filepath.Join(realdata.Root(t), ".build")
	dir := filepath.Join(root, "mcap-js-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(root, 0o777); err != nil {
		t.Skip("nowhere to install packages:", err)
	}
	tmp, err := os.MkdirTemp(root, "mcap-js-")
	if err != nil {
		t.Skip("nowhere to install packages:", err)
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		b, err := os.ReadFile(filepath.Join("testdata", "js", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tmp, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci")
	install.Dir = tmp
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("the packages cannot be installed: %v: %s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil { // another run of the test was faster
		if _, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines returns the same lines for a file as reference.mjs: topic, times, sequence, timestamp, and
// the hash of the decoded value of each message.
func lines(t *testing.T, file string) []string {
	t.Helper()
	ctx := context.Background()
	s := openFile(t, file, StorageOptions{})
	var out []string
	for k, info := range s.Topics() {
		ix, err := s.Index(ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := ros2.ParseSchema(info.SchemaEncoding, info.Type, info.SchemaText)
		if err != nil {
			t.Fatal(err)
		}
		var top *ros2.Topic
		if err := s.Messages(ctx, k, 0, len(ix.Log), func(i int, m *bag.Message) error {
			if top == nil {
				if top, err = ros2.NewTopic(info.Name, schema, [][]byte{m.Data}); err != nil {
					return err
				}
			}
			value, err := valueOf(top, m.Data)
			if err != nil {
				return err
			}
			timestamp := "-"
			if ns, ok, err := top.Timestamp(m.Data); err != nil {
				return err
			} else if ok {
				timestamp = fmt.Sprint(ns)
			}
			out = append(
				out,
				fmt.Sprintf(
					"%s\t%d\t%d\t%d\t%s\t%x",
					info.Name,
					m.Log,
					m.Publish,
					m.Sequence,
					timestamp,
					sha256.Sum256(value),
				),
			)
			return nil
		}); err != nil {
			t.Fatal(info.Name, err)
		}
	}
	slices.Sort(out)
	return out
}

// valueOf returns the single value of a message as bytes.
func valueOf(top *ros2.Topic, msg []byte) ([]byte, error) {
	f := top.Fields()[0].Feature
	switch {
	case f.Kind == robocache.KindText:
		text, err := top.Text(msg, 0, 0)
		return []byte(text), err
	case f.Kind == robocache.KindImage:
		ref, err := top.Image(msg, 0, 0)
		if ref.Raw != nil {
			return ref.Raw.Pix, err
		}
		return ref.Encoded, err
	case f.Ragged():
		data, _, err := top.Ragged(msg, 0, 0, nil)
		return data, err
	}
	row := make([]byte, f.RowBytes())
	_, err := top.Numeric(msg, 0, 0, row)
	return row, err
}

// TestFoxglove checks that @mcap/core, @foxglove/rosmsg and @foxglove/rosmsg2-serialization read
// the same schemas, messages, times, counts and values as this package.
func TestFoxglove(t *testing.T) {
	dir := packages(t)
	ctx := context.Background()
	src, err := synth.New(synth.Options{
		Episodes: 1, Seconds: 1, Width: 64, Height: 64, Cameras: 1, Points: 40,
		Rates: map[string]float64{"camera": 10, "joints": 50, "force": 333, "cloud": 5, "text": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []map[string]string{
		{"compression": "zstd"},
		{"compression": "none", "images": "raw"},
	} {
		file := filepath.Join(t.TempDir(), "one.mcap")
		if _, err := Write(ctx, src, file, robocache.WriteOptions{Options: opt}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(
			t.Context(),
			"node",
			filepath.Join("testdata", "js", "reference.mjs"),
			dir,
			file,
		)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		if last := got[len(got)-1]; last != "metadata\trobocache\t2" {
			t.Errorf("metadata: %q", last)
		}
		got = got[:len(got)-1]
		slices.Sort(got)
		want := lines(t, file)
		if len(got) != len(want) {
			t.Fatalf("%d messages there, %d here", len(got), len(want))
		}
		topics := map[string]int{}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v: there %s\n here %s", opt, got[i], want[i])
			}
			topic, _, _ := strings.Cut(want[i], "\t")
			topics[topic]++
		}
		if len(topics) < 6 {
			t.Errorf("only these topics: %v", topics)
		}
		t.Log(topics)
	}
}
