// Package mcap receives the messages of an MCAP file that is being written, for example by "ros2 bag
// record".
//
// The URI is mcap:///path/file.mcap, or mcap:///path/folder for a folder of .mcap files. Of a
// folder, the newest file is read, and then each file that is created. The path need not exist yet.
// Messages that are complete in the file when Run begins are not delivered. With
// mcap:///path?from=start, all messages of all files are.
//
// Messages arrive when their chunk is complete. For the least delay, record without chunks: ros2
// bag record --storage mcap --storage-preset-profile fastwrite. A recording that rosbag2 compresses
// (--compression-mode) is not supported.
//
// A damaged chunk is left out and reported. If the file is replaced, truncated or written again,
// Run continues at the start of the new content.
package mcap

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/live/transport"
)

const (
	fileSuffix = ".mcap"
	// A read of the size of a file takes about 1 µs.
	pollInterval = 5 * time.Millisecond
	// checkInterval is the time between two looks for a new file, if the present one does not grow.
	checkInterval = 50 * time.Millisecond
	// idleLimit is the time without growth after which a newer file of the folder is read, even if
	// the present file has no end.
	idleLimit = 300 * time.Millisecond
)

func init() { transport.Register("mcap", Open) }

// Open returns the transport of a file or folder.
func Open(uri string) (transport.Transport, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Host != "" || !filepath.IsAbs(u.Path) || u.Fragment != "" {
		return nil, misusedURI(uri, "mcap:///path/file.mcap")
	}
	query := u.Query()
	from := query.Get("from")
	query.Del("from")
	if len(query) > 0 || from != "" && from != "start" && from != "end" {
		return nil, misusedURI(uri, "?from=start or ?from=end")
	}
	return &Transport{path: filepath.Clean(u.Path), fromStart: from == "start"}, nil
}

func misusedURI(uri, want string) error {
	return robocache.Misuse("live", nil, "").Expected(want, robocache.Redact(uri))
}

// Transport receives the messages of a file or folder.
type Transport struct {
	transport.Errors
	path      string
	fromStart bool
}

// Run implements transport.Transport.
func (t *Transport) Run(
	ctx context.Context,
	topics []string,
	receive func(*transport.Message),
) (err error) {
	defer crash.Recover("live mcap", &err)
	f := &follower{path: t.path, topics: topics, receive: receive, seen: map[string]bool{}}
	defer f.closeFile()
	step := f.pollFile
	if !t.fromStart {
		step = f.skipExisting
	}
	timer := time.NewTicker(pollInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		err := step(ctx)
		if err == nil {
			step = f.pollFile
		} else if errors.Is(err, robocache.ErrInternal) {
			return err
		} else if ctx.Err() == nil {
			t.Recovered(robocache.At(err, robocache.Where{"file": cmp.Or(f.name, f.path)}))
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err()
}

// follower reads one file after the other.
type follower struct {
	path    string
	topics  []string
	receive func(*transport.Message)

	seen     map[string]bool // names of files that were opened
	name     string          // name of the present file
	file     *os.File        // nil before the first file
	info     fs.FileInfo     // of file
	size     int64           // size of the file at the last poll
	tail     *mcap.Tail
	channels map[*mcap.MessageChannel]*transport.Channel // nil for other topics
	message  transport.Message
	grown    time.Time // when the file grew last
	checked  time.Time // when new files were looked for last
}

// listFiles returns the names of the files in their order. It returns none if the path does not
// exist.
func (f *follower) listFiles() ([]string, error) {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !info.IsDir() {
		return []string{f.path}, err
	}
	entries, err := os.ReadDir(f.path)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), fileSuffix) && !e.IsDir() {
			names = append(names, filepath.Join(f.path, e.Name()))
		}
	}
	slices.SortFunc(names, mcap.CompareNames)
	return names, err
}

// skipExisting opens the newest file and passes over its messages.
func (f *follower) skipExisting(ctx context.Context) error {
	names, err := f.listFiles()
	if err != nil || len(names) == 0 {
		return err
	}
	newest, modified := "", time.Time{}
	for _, name := range names {
		f.seen[name] = true
		if info, err := os.Stat(name); err == nil && !info.ModTime().Before(modified) {
			newest, modified = name, info.ModTime()
		}
	}
	if err := f.openFile(newest); err != nil {
		return err
	}
	for {
		err := f.tail.Skip(ctx, f.size)
		if !robocache.Bad(err) && !errors.Is(err, robocache.ErrResourceLimit) {
			return err
		} // damage in skipped records is not reported
	}
}

// openFile opens a file at its start.
func (f *follower) openFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	f.closeFile()
	f.name, f.file, f.info, f.seen[name] = name, file, info, true
	f.beginTail()
	f.size = info.Size()
	return nil
}

// beginTail begins at the start of the present file.
func (f *follower) beginTail() {
	f.tail = mcap.NewTail(f.file, mcap.TailLimits)
	f.channels = map[*mcap.MessageChannel]*transport.Channel{}
	f.size, f.grown = 0, time.Now()
}

func (f *follower) closeFile() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// pollFile delivers the messages that were written since the last poll, or opens the next file.
func (f *follower) pollFile(ctx context.Context) error {
	if f.file == nil {
		return f.openNext()
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size < f.size {
		f.beginTail()
	}
	if size > f.size {
		f.grown = time.Now()
	}
	f.size = size
	err = f.tail.Poll(ctx, size, f.deliverMessage)
	if errors.Is(err, mcap.ErrRewritten) {
		f.beginTail()
		return nil
	}
	if err == nil && time.Since(f.grown) > checkInterval {
		err = f.openNext()
	}
	return err
}

// openNext opens the file that follows the present one, if there is one. It lists files at most
// once per checkInterval.
func (f *follower) openNext() error {
	if time.Since(f.checked) < checkInterval {
		return nil
	}
	f.checked = time.Now()
	if f.file != nil {
		if info, err := os.Stat(f.name); err == nil && !os.SameFile(info, f.info) {
			return f.openFile(f.name)
		}
		if !f.tail.Ended() && time.Since(f.grown) < idleLimit {
			return nil
		}
	}
	names, err := f.listFiles()
	for _, name := range names {
		if !f.seen[name] {
			return f.openFile(name)
		}
	}
	return err
}

// deliverMessage passes a message to the receiver if its topic is requested.
func (f *follower) deliverMessage(c *mcap.MessageChannel, m *mcap.Message) {
	channel, known := f.channels[c]
	if !known {
		if slices.Contains(f.topics, c.Topic) {
			channel = &transport.Channel{Topic: c.Topic, Encoding: c.Encoding}
			if s := f.tail.Schema(c); s != nil {
				channel.Type, channel.SchemaEncoding, channel.Schema = s.Name, s.Encoding, s.Data
			}
		}
		f.channels[c] = channel
	}
	if channel == nil {
		return
	}
	f.message = transport.Message{
		Channel: channel,
		Data:    m.Data,
		Log:     m.Log,
		Arrival: time.Now().UnixNano(),
	}
	f.receive(&f.message)
}
