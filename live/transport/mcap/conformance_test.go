package mcap_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/live/livetest"
	_ "github.com/goatnote-inc/robocache/live/transport/mcap"
	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

// recorder is the common part of the writers of MCAP files.
type recorder interface {
	Message(channel uint16, log int64, data []byte) error
	Flush() error
}

// server writes a file, or one file after the other into a folder.
type server struct {
	rec       *transporttest.Recording
	path      string
	query     string
	isFolder  bool // each start, and every 40 messages, begins a new file
	isRemoved bool // a start replaces the file instead of truncating it
	isBare    bool // no chunks

	lock     sync.Mutex
	recorder recorder
	file     *os.File
	files    int
	messages int
	stopped  chan struct{}
	flusher  sync.WaitGroup
}

func (s *server) URI() string { return "mcap://" + s.path + s.query }

// begin begins a file with all channels.
func (s *server) begin() error {
	path := s.path
	if s.isFolder {
		if err := os.MkdirAll(s.path, 0o777); err != nil {
			return err
		}
		path = filepath.Join(s.path, fmt.Sprintf("bag_%d.mcap", s.files))
		s.files++
	}
	if s.isRemoved {
		os.Remove(path)
	}
	var err error
	if s.file, err = os.Create(path); err != nil {
		return err
	}
	if s.isBare {
		s.recorder, err = newBareRecorder(s.file, s.rec)
	} else {
		s.recorder, err = newChunkRecorder(s.file, s.rec)
	}
	return err
}

// Start begins a file and flushes its chunk every 10 ms.
func (s *server) Start() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.stopped = make(chan struct{})
	s.flusher.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-s.stopped:
				return
			case <-tick.C:
				s.lock.Lock()
				s.recorder.Flush()
				s.lock.Unlock()
			}
		}
	})
	return s.begin()
}

func (s *server) Publish(i int) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.messages++; s.isFolder && s.messages%40 == 0 {
		if err := s.end(); err != nil {
			return err
		}
		if err := s.begin(); err != nil {
			return err
		}
	}
	m := &s.rec.Messages[i]
	for id, c := range s.rec.Channels {
		if c == m.Channel {
			return s.recorder.Message(uint16(id+1), m.Log, m.Data)
		}
	}
	return nil
}

// end closes a file with its summary.
func (s *server) end() error {
	if c, ok := s.recorder.(io.Closer); ok {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return s.file.Close()
}

// Stop leaves a file that ends within a record.
func (s *server) Stop() error {
	if s.stopped == nil {
		return nil
	}
	close(s.stopped)
	s.flusher.Wait()
	s.stopped = nil
	if _, err := s.file.Write([]byte{5, 200, 0}); err != nil {
		return err
	}
	return s.file.Close()
}

// tornWriter writes in two parts, so that a reader sees incomplete records.
type tornWriter struct{ file *os.File }

func (w tornWriter) Write(p []byte) (int, error) {
	n := len(p) * 2 / 3
	if _, err := w.file.Write(p[:n]); err != nil {
		return 0, err
	}
	if len(p) > 1000 {
		time.Sleep(time.Millisecond)
	}
	_, err := w.file.Write(p[n:])
	return len(p), err
}

// chunkRecorder is RoboCache's own writer.
type chunkRecorder struct{ *mcap.Writer }

func newChunkRecorder(file *os.File, rec *transporttest.Recording) (recorder, error) {
	w, err := mcap.NewWriter(tornWriter{file}, mcap.WriterOptions{
		Profile:     "ros2",
		Compression: mcap.Zstd,
	})
	if err != nil {
		return nil, err
	}
	for _, c := range rec.Channels {
		schema, err := w.Schema(c.Type, c.SchemaEncoding, c.Schema)
		if err != nil {
			return nil, err
		}
		if _, err := w.Channel(schema, c.Topic, c.Encoding, nil); err != nil {
			return nil, err
		}
	}
	return chunkRecorder{w}, nil
}

func (r chunkRecorder) Message(channel uint16, log int64, data []byte) error {
	return r.Writer.Message(&mcap.Message{Channel: channel, Log: log, Publish: log, Data: data})
}

// bareRecorder writes messages without chunks, as the profile fastwrite of rosbag2 does.
type bareRecorder struct{ *foxglove.Writer }

func newBareRecorder(file *os.File, rec *transporttest.Recording) (recorder, error) {
	w, err := foxglove.NewWriter(tornWriter{file}, &foxglove.WriterOptions{})
	if err != nil {
		return nil, err
	}
	if err := w.WriteHeader(&foxglove.Header{Profile: "ros2"}); err != nil {
		return nil, err
	}
	for i, c := range rec.Channels {
		id := uint16(i + 1)
		if err := w.WriteSchema(&foxglove.Schema{
			ID: id, Name: c.Type, Encoding: c.SchemaEncoding, Data: []byte(c.Schema),
		}); err != nil {
			return nil, err
		}
		if err := w.WriteChannel(&foxglove.Channel{
			ID: id, SchemaID: id, Topic: c.Topic, MessageEncoding: c.Encoding,
		}); err != nil {
			return nil, err
		}
	}
	return bareRecorder{w}, nil
}

func (r bareRecorder) Message(channel uint16, log int64, data []byte) error {
	return r.WriteMessage(&foxglove.Message{
		ChannelID: channel, LogTime: uint64(log), PublishTime: uint64(log), Data: data,
	})
}

func (bareRecorder) Flush() error { return nil }

func TestConformance(t *testing.T) {
	for name, configure := range map[string]func(s *server){
		"TruncatedFile": func(*server) {},
		"ReplacedFile":  func(s *server) { s.isRemoved = true },
		"WithoutChunks": func(s *server) { s.isBare = true },
		"SplitFiles":    func(s *server) { s.isFolder, s.query = true, "?from=start" },
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(
				t,
				func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
					s := &server{rec: rec, path: filepath.Join(t.TempDir(), "bag.mcap")}
					configure(s)
					return s
				},
				transporttest.Options{LogTimes: true},
			)
		})
	}
}

// TestPythonWriter tails a file of the Python package mcap, with LZ4 chunks.
func TestPythonWriter(t *testing.T) {
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if exec.Command(python, "-c", "import mcap, lz4").Run() != nil {
		t.Skip("the Python package mcap is not installed (make prepare)")
	}
	transporttest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		path := filepath.Join(t.TempDir(), "live.mcap")
		return transporttest.NewProcess(t, "mcap://"+path, func() *exec.Cmd {
			return exec.Command(python, "testdata/writer.py", rec.Path, path)
		})
	}, transporttest.Options{LogTimes: true})
}

// TestLiveObservations compares observations behind the transport with those of a Loader.
func TestLiveObservations(t *testing.T) {
	livetest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		return &server{rec: rec, path: filepath.Join(t.TempDir(), "bag.mcap")}
	})
}
