package mcap

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/loopback"
	"github.com/goatnote-inc/robocache/video"
)

// noisy writes a recording of 200 chunks of about 40 KB that do not compress. Each chunk has four
// messages, of two topics in turn.
func noisy(t *testing.T, dir string) {
	r := rand.New(rand.NewPCG(1, 2))
	var list []msg
	for k := range 800 {
		text := make([]byte, 10<<10)
		for i := range text {
			text[i] = byte(33 + r.IntN(90))
		}
		list = append(
			list,
			msg{
				[]string{"/a", "/b"}[k/400],
				"std_msgs/msg/String",
				epoch + int64(k)*1e6,
				ros2.EncodeString(nil, string(text)),
			},
		)
	}
	recordIn(t, filepath.Join(dir, "noisy.mcap"), 40<<10, list)
}

// served opens the recording through an HTTP server.
func served(
	t *testing.T,
	opt StorageOptions,
	strike func(n int64, w http.ResponseWriter, r *http.Request) bool,
) (*Storage, *loopback.Server) {
	t.Helper()
	dir := t.TempDir()
	noisy(t, dir)
	srv, err := loopback.Serve(dir, loopback.Options{Strike: strike})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	st, err := store.Open(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(st) })
	r, err := st.Open(t.Context(), "noisy.mcap")
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStorage(t.Context(), r, "noisy.mcap", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, srv
}

func texts(t *testing.T, s *Storage, topic, from, to int) [][]byte {
	t.Helper()
	var out [][]byte
	if err := s.Messages(t.Context(), topic, from, to, func(_ int, m *bag.Message) error {
		out = append(out, bytes.Clone(m.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRemoteWindow checks that neighboring chunks of a window are read with one request, and all
// message indexes with few requests.
func TestRemoteWindow(t *testing.T) {
	s, srv := served(t, StorageOptions{}, nil)
	chunks := len(s.File().Chunks)
	if chunks < 150 {
		t.Fatalf("%d chunks", chunks)
	}
	before := srv.Requests()
	if _, err := s.Index(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n := srv.Requests() - before; n > 4 {
		t.Errorf("%d requests for the message indexes of %d chunks", n, chunks)
	}
	dir := t.TempDir()
	noisy(t, dir)
	local := openFile(t, filepath.Join(dir, "noisy.mcap"), StorageOptions{})
	for _, w := range [][2]int{{40, 80}, {100, 101}, {200, 232}} {
		before, sent := srv.Requests(), srv.Bytes()
		got := texts(t, s, 0, w[0], w[1])
		if n := srv.Requests() - before; n != 1 {
			t.Errorf("messages %v: %d requests", w, n)
		}
		if n := srv.Bytes() - sent; n > int64(w[1]-w[0]+8)*11<<10 {
			t.Errorf("messages %v: %d bytes", w, n)
		}
		want := texts(t, local, 0, w[0], w[1])
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("message %d differs", w[0]+i)
			}
		}
	}
}

// TestRemotePasses checks that a pass over all chunks sends one request per 4 MiB, or less for a
// small budget, and that distant chunks are requested separately.
func TestRemotePasses(t *testing.T) {
	for _, c := range []struct {
		budget int64
		most   int64
	}{{0, 4}, {8 << 20, 20}} {
		s, srv := served(t, StorageOptions{Chunks: container.NewChunks(c.budget)}, nil)
		if _, err := s.Index(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			before, n := srv.Requests(), 0
			if _, err := s.Walk(
				t.Context(),
				[]int{0, 1},
				func(int, int, *bag.Message) error { n++; return nil },
			); err != nil ||
				n != 800 {
				t.Fatal(err, n)
			}
			if r := srv.Requests() - before; r > c.most {
				t.Errorf("budget %d: %d requests for all", c.budget, r)
			}
		}
	}
}

// TestRemoteTrouble checks that chunks are read separately if joined requests fail, and that
// requests end when the caller cancels.
func TestRemoteTrouble(t *testing.T) {
	s, _ := served(t, StorageOptions{}, func(_ int64, w http.ResponseWriter, r *http.Request) bool {
		var from, to int64
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 &&
			to-from > 200<<10 {
			http.Error(w, "too much", http.StatusForbidden)
			return true
		}
		return false
	})
	if got := texts(t, s, 0, 40, 120); len(got) != 80 {
		t.Fatalf("%d messages", len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := s.Messages(ctx, 1, 0, 400, func(int, *bag.Message) error {
		if n++; n == 10 {
			cancel()
		}
		return nil
	})
	if err == nil {
		t.Fatal("the end of the context was not seen")
	}
	if got := texts(t, s, 1, 0, 400); len(got) != 400 {
		t.Fatalf("%d messages afterwards", len(got))
	}
}

// TestRemoteVideo checks that the video of a remote recording reports that it is remote, so that
// packets are read ahead of decoding.
func TestRemoteVideo(t *testing.T) {
	stream, err := os.ReadFile(
		filepath.Join("..", "..", "video", "testdata", "packets", "small.h264"),
	)
	if err != nil {
		t.Fatal(err)
	}
	packets := bytes.SplitAfter(stream, []byte{0, 0, 0, 1, 9})
	for i, p := range packets { // the start code belongs to the next one
		packets[i] = bytes.TrimSuffix(p, []byte{0, 0, 0, 1, 9})
		if i > 0 {
			packets[i] = append([]byte{0, 0, 0, 1, 9}, packets[i]...)
		}
	}
	packets = packets[1:]
	dir := t.TempDir()
	var list []msg
	for k := range 70 {
		at := epoch + int64(k)*33e6
		list = append(
			list,
			msg{
				"/cam",
				"sensor_msgs/msg/CompressedImage",
				at,
				ros2.EncodeCompressedImage(nil, ros2.Header{Timestamp: at}, "h264", packets[k%7]),
			},
		)
	}
	recordIn(t, filepath.Join(dir, "film.mcap"), 2048, list)
	srv, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	ctx := t.Context()
	for _, uri := range []string{srv.URL + "/film.mcap", filepath.Join(dir, "film.mcap")} {
		ds, err := Open(ctx, uri, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		rows := []robocache.Row{{Index: 30}}
		refs := make([]robocache.FrameRef, 1)
		if err := ds.Frames(ctx, "cam", rows, refs); err != nil || refs[0].Ordinal != 30 {
			t.Fatal(refs, err)
		}
		f, err := ds.Video().Acquire(ctx, refs[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		if far := uri[0] != '/'; f.Remote() != far {
			t.Errorf("%s: remote %v", uri, f.Remote())
		}
		if f.Index.NumFrames() != 70 || f.Index.Governing(30) != 28 {
			t.Errorf("%d images; 30 begins at %d", f.Index.NumFrames(), f.Index.Governing(30))
		}
		got, err := video.Fetch(ctx, f, video.Plan(f.Index, []int{30, 40}))
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
	}
}
