package mcap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/live/transport"
)

// bag is a file that a test writes message by message.
type bag struct {
	t    *testing.T
	file *os.File
	w    *mcap.Writer
}

func createBag(t *testing.T, path string) *bag {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	w, err := mcap.NewWriter(file, mcap.WriterOptions{Compression: mcap.Zstd})
	if err != nil {
		t.Fatal(err)
	}
	schema, _ := w.Schema("std_msgs/msg/String", "ros2msg", "string data")
	if _, err := w.Channel(schema, "/a", "cdr", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Channel(schema, "/b", "cdr", nil); err != nil {
		t.Fatal(err)
	}
	return &bag{t, file, w}
}

// write writes a message of /a and one of /b as a chunk.
func (b *bag) write(text string) {
	b.t.Helper()
	for channel := range uint16(2) {
		m := &mcap.Message{Channel: channel + 1, Log: 5, Data: []byte(text)}
		if err := b.w.Message(m); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.w.Flush(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bag) close() {
	b.t.Helper()
	if err := b.w.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// follow collects the texts of messages of /a, and the reported errors.
type follow struct {
	t    *testing.T
	lock sync.Mutex
	got  []string
	errs []string
}

// startFollow runs the transport of a URI until the end of the test.
func startFollow(t *testing.T, uri string) *follow {
	t.Helper()
	tr, err := transport.Open(uri)
	if err != nil {
		t.Fatal(err)
	}
	f := &follow{t: t}
	tr.(transport.Reporter).OnError(func(err error) {
		f.lock.Lock()
		defer f.lock.Unlock()
		f.errs = append(f.errs, err.Error())
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- tr.Run(ctx, []string{"/a"}, func(m *transport.Message) {
			f.lock.Lock()
			defer f.lock.Unlock()
			if m.Channel.Topic != "/a" || m.Channel.Type != "std_msgs/msg/String" {
				t.Errorf("channel %+v", m.Channel)
			}
			f.got = append(f.got, string(m.Data))
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	return f
}

// want waits until exactly these messages were received.
func (f *follow) want(texts ...string) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		f.lock.Lock()
		got := slices.Clone(f.got)
		f.lock.Unlock()
		if slices.Equal(got, texts) {
			return
		}
		if time.Now().After(deadline) || len(got) > len(texts) {
			f.t.Fatalf("got %v, want %v", got, texts)
		}
		time.Sleep(time.Millisecond)
	}
}

// wantError waits for an error report that contains text.
func (f *follow) wantError(text string) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		f.lock.Lock()
		errs := strings.Join(f.errs, "\n")
		f.lock.Unlock()
		if strings.Contains(errs, text) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("reported %q, want %q", errs, text)
		}
		time.Sleep(time.Millisecond)
	}
}

// pause is longer than it takes to read a file that exists.
const pause = 200 * time.Millisecond

// TestStartsAtEnd checks that messages before Run are left out, and that the channels that they
// define are known.
func TestStartsAtEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mcap")
	b := createBag(t, path)
	b.write("one")
	b.write("two")
	f := startFollow(t, "mcap://"+path)
	all := startFollow(t, "mcap://"+path+"?from=start")
	all.want("one", "two")
	time.Sleep(pause)
	b.write("three")
	f.want("three")
	all.want("one", "two", "three")
	b.close()
	time.Sleep(pause)
	createBag(t, path).write("four") // another recording with the same name
	f.want("three", "four")
}

// TestFolder checks that the newest file of a folder is followed, and then each new one, also if
// the file before has no end.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bag")
	f := startFollow(t, "mcap://"+dir) // the folder does not exist
	time.Sleep(pause)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("bag_%d.mcap", i)) }
	if err := os.WriteFile(filepath.Join(dir, "metadata.yaml"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	first := createBag(t, name(8))
	first.write("one")
	f.want("one")
	first.write("two")
	f.want("one", "two")
	first.close()
	second := createBag(t, name(9))
	second.write("three")
	f.want("one", "two", "three")
	second.write("four") // and no end
	third := createBag(t, name(10))
	third.write("five")
	f.want("one", "two", "three", "four", "five")
	late := startFollow(t, "mcap://"+dir)
	all := startFollow(t, "mcap://"+dir+"?from=start")
	all.want("one", "two", "three", "four", "five")
	time.Sleep(pause)
	third.write("six")
	late.want("six")
	all.want("one", "two", "three", "four", "five", "six")
}

// TestReportsDamage checks that Run continues after a damaged chunk and after a file that is no
// MCAP file.
func TestReportsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mcap")
	if err := os.WriteFile(path, []byte("this is no recording"), 0o666); err != nil {
		t.Fatal(err)
	}
	f := startFollow(t, "mcap://"+path+"?from=start")
	f.wantError(path + ", offset 0: magic")
	whole := filepath.Join(t.TempDir(), "whole.mcap")
	b := createBag(t, whole)
	b.write("one")
	damaged, _ := b.file.Seek(0, io.SeekCurrent)
	b.write(strings.Repeat("bad ", 100))
	b.write("two")
	if _, err := b.file.WriteAt([]byte("damage"), damaged+60); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
	f.want("one", "two")
	f.wantError("offset " + fmt.Sprint(damaged))
}

func TestURIs(t *testing.T) {
	for _, uri := range []string{
		"mcap://a.mcap", "mcap://host/a.mcap", "mcap:///a.mcap?from=now", "mcap:///a.mcap?x=1",
		"mcap://",
	} {
		if _, err := transport.Open(uri); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}
